//! Source folders have a limited number of entries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::packages::packages;
use crate::root;

/// The maximum number of entries in a folder.
const LIMIT: usize = 12;

/// The folders with more entries than [`LIMIT`], and the maximum of each. No folder may grow. A
/// folder that is split leaves this list.
const LARGE_FOLDERS: [(&str, usize); 14] = [
    ("abi/src", 14),
    ("fabtests/bench/src", 19),
    ("fabtests/bench/src/fabric", 14),
    ("fabtests/src", 16),
    ("fabtests/src/campaign", 27),
    ("fabtests/src/suite", 13),
    ("fabtests/src/suite/context", 17),
    ("fabtests/src/suite/tests", 22),
    ("fabtests/src/upstream", 28),
    ("fabtests/src/upstream/functional", 25),
    ("util/capi/fabric/src", 25),
    ("util/capi/fabric/src/ep", 14),
    ("util/cheetah/src", 20),
    ("util/cheetah/src/engine", 14),
];

#[test]
fn folders_have_at_most_twelve_entries_or_do_not_grow() {
    let large = BTreeMap::from(LARGE_FOLDERS);
    let mut grown = Vec::new();
    for package in packages() {
        visit_folders(Path::new(&package.sources), &mut |folder, count| {
            let maximum = large.get(folder).copied().unwrap_or(LIMIT);
            if count > maximum {
                grown.push(format!(
                    "{folder} has {count} entries, more than the maximum of {maximum}"
                ));
            }
        });
    }
    assert!(grown.is_empty(), "{grown:#?}");
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
