//! The packages of the workspace, from `cargo metadata`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::root;

/// A package of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// The folder with the sources of the package, as a path from the root of the checkout.
    pub(crate) sources: String,
    /// The dependencies of the package, without those of its tests.
    pub(crate) dependencies: BTreeSet<String>,
}

/// Returns all packages of the workspace.
pub(crate) fn packages() -> Vec<Package> {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{metadata:?}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages.iter().map(package).collect()
}

fn package(package: &Value) -> Package {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap();
    Package {
        name: name(package),
        sources: folder.join("src").to_str().unwrap().to_owned(),
        dependencies: dependencies(package),
    }
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
