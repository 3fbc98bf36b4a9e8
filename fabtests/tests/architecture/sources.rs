//! The source files of the workspace.

use std::fs;
use std::path::Path;

use crate::packages::packages;
use crate::root;

/// Every file that a package ships, by its path from the root, with its text. Tests and examples
/// are in other folders.
pub(crate) fn shipped() -> Vec<(String, String)> {
    let packages = packages().into_iter();
    packages
        .flat_map(|package| under(&package.sources))
        .collect()
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
