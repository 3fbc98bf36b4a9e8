//! Source folders have a limited number of entries.

use std::fs;
use std::path::Path;

use crate::packages::packages;
use crate::root;

/// The maximum number of entries in a folder.
const LIMIT: usize = 12;

#[test]
fn folders_have_at_most_twelve_entries() {
    let mut large = Vec::new();
    for package in packages() {
        visit_folders(Path::new(&package.sources), &mut |folder, count| {
            if count > LIMIT {
                large.push(format!("{folder} has {count} entries, more than {LIMIT}"));
            }
        });
    }
    assert!(large.is_empty(), "{large:#?}");
}

/// Calls `report` for `folder` and for each folder below, with the number of its entries.
fn visit_folders(folder: &Path, report: &mut impl FnMut(&str, usize)) {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let entries: Vec<_> = entries.map(|entry| entry.unwrap()).collect();
    report(folder.to_str().unwrap(), entries.len());
    for entry in entries {
        if entry.file_type().unwrap().is_dir() {
            visit_folders(&folder.join(entry.file_name()), report);
        }
    }
}
