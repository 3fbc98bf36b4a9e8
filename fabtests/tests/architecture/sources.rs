//! The source files of the workspace.

use std::fs;
use std::path::Path;

use crate::root;

/// Where packages keep what they ship; tests and examples have other folders.
const SOURCES: [&str; 18] = [
    "src",
    "abi/src",
    "providers/src",
    "providers/kit/src",
    "providers/shm/src",
    "providers/tcp/src",
    "providers/udp/src",
    "providers/ofi/src",
    "providers/lnx/src",
    "providers/hook/src",
    "util/bmi/src",
    "util/capi/bmi/src",
    "fabtests/src",
    "fabtests/bench/src",
    "util/cheetah/src",
    "util/capi/cheetah/src",
    "util/capi/fabric/src",
    "xtask/src",
];

/// Every file that is shipped: its path from the root, and its text.
pub(crate) fn shipped() -> Vec<(String, String)> {
    SOURCES.into_iter().flat_map(under).collect()
}

/// The files below a folder.
pub(crate) fn under(folder: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    collect(&root().join(folder), &mut files);
    assert!(!files.is_empty(), "no sources below {folder}");
    files
}

fn collect(folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let from_root = path.strip_prefix(root()).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            files.push((from_root.to_str().unwrap().to_owned(), text));
        }
    }
}
