//! The source files of the workspace.

use std::fs;
use std::path::Path;

use crate::packages::packages;
use crate::root;

/// Returns the Rust files that packages ship, by their paths from the root, with their texts. Tests
/// and examples are in other folders.
pub(crate) fn shipped_files() -> Vec<(String, String)> {
    let packages = packages().into_iter();
    packages
        .flat_map(|package| files_below(&package.sources))
        .collect()
}

/// Returns the Rust files below a folder, by their paths from the root, with their texts.
pub(crate) fn files_below(folder: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    collect_files(&root().join(folder), &mut files);
    assert!(!files.is_empty(), "no sources below {folder}");
    files
}

fn collect_files(folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let from_root = path.strip_prefix(root()).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            files.push((from_root.to_str().unwrap().to_owned(), text));
        }
    }
}
