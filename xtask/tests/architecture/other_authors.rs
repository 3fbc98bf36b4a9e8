//! Packages of other authors have allowed licences, and one version each.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::root;

/// The licences under which packages may be used. All permit to distribute the result under this
/// project's licences.
const LICENCES: [&str; 9] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages of which the lock file has several versions, each with the reason.
const DUPLICATES: [(&str, &str); 3] = [
    ("getrandom", "ring, which rustls uses, has the older one"),
    (
        "syn",
        "some derive macros have moved to version 3, others not",
    ),
    ("winnow", "toml and its writer have different versions"),
];

/// A package of another author.
struct Package {
    name: String,
    version: String,
    licence: String,
}

/// Returns the packages that builds for this target use.
fn packages() -> Vec<Package> {
    let target = "x86_64-unknown-linux-gnu";
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--filter-platform",
            target,
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{metadata:?}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let all = metadata["packages"].as_array().unwrap().iter();
    let others = all.filter(|package| !package["source"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let package = |package: &Value| Package {
        name: text(&package["name"]),
        version: text(&package["version"]),
        licence: text(&package["license"]),
    };
    others.map(package).collect()
}

/// Whether a licence expression, such as `(MIT OR Apache-2.0) AND Zlib`, can be met.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        let alternatives = part.trim_matches(['(', ')', ' ']).split(" OR ");
        alternatives
            .map(str::trim)
            .any(|licence| LICENCES.contains(&licence))
    })
}

#[test]
fn packages_of_other_authors_have_allowed_licences() {
    let packages = packages();
    assert!(packages.len() > 50, "the list is not complete");
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| !is_allowed(&package.licence))
        .map(|Package { name, licence, .. }| format!("{name} has the licence {licence:?}"))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    for wrong in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(MIT OR ISC) AND AGPL-3.0",
    ] {
        assert!(!is_allowed(wrong), "{wrong:?} is allowed");
    }
}

#[test]
fn packages_have_one_version_unless_there_is_a_reason() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for Package { name, version, .. } in packages() {
        versions.entry(name).or_default().insert(version);
    }
    let duplicates: Vec<_> = versions
        .iter()
        .filter_map(|(name, versions)| (versions.len() > 1).then_some(&**name))
        .collect();
    assert_eq!(duplicates, DUPLICATES.map(|(name, _)| name));
}
