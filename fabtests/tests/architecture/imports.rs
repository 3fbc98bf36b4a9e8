//! Which package uses which, as Cargo sees it and as the table allows it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::{root, table};

/// Checks everything, so its imports have no direction.
const UNRESTRICTED: &str = "fabtests";

#[test]
fn packages_import_what_the_table_allows_and_no_more() {
    let allowed: BTreeMap<_, _> = table("## Allowed imports")
        .into_iter()
        .flat_map(|[packages, imports]| packages.into_iter().map(move |p| (p, imports.clone())))
        .collect();
    let mut packages = imports();
    packages.remove(UNRESTRICTED).unwrap();
    assert_eq!(packages, allowed);
}

/// Every package of the workspace, with what it depends on outside of tests.
fn imports() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{metadata:?}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|package| (name(package), dependencies(package)))
        .collect()
}

fn dependencies(package: &Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().unwrap();
    all.iter()
        .filter(|dependency| dependency["kind"] != "dev")
        .map(name)
        .collect()
}

fn name(item: &Value) -> String {
    item["name"].as_str().unwrap().to_owned()
}
