//! Source folders have a limited number of entries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::packages::packages;
use crate::root;

/// The maximum number of entries in a folder.
const LIMIT: usize = 12;

/// The folders with more entries, and their maximum. No folder may grow; a folder that is split
/// leaves this list.
const LARGE: [(&str, usize); 22] = [
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
    ("providers/hook/src", 14),
    ("providers/kit/src", 39),
    ("providers/kit/src/coll", 17),
    ("providers/kit/src/telemetry", 13),
    ("providers/lnx/src", 16),
    ("providers/ofi/src", 21),
    ("src", 44),
    ("src/owned/endpoint", 13),
    ("util/capi/fabric/src", 25),
    ("util/capi/fabric/src/ep", 14),
    ("util/cheetah/src", 20),
    ("util/cheetah/src/engine", 14),
];

#[test]
fn folders_have_at_most_twelve_entries_or_do_not_grow() {
    let large = BTreeMap::from(LARGE);
    let mut grown = Vec::new();
    for package in packages() {
        visit(Path::new(&package.sources), &mut |folder, count| {
            let max = large.get(folder).copied().unwrap_or(LIMIT);
            if count > max {
                grown.push(format!(
                    "{folder} has {count} entries, more than the maximum of {max}"
                ));
            }
        });
    }
    assert!(grown.is_empty(), "{grown:#?}");
}

/// Calls a function for this folder and all folders below, with the number of entries.
fn visit(folder: &Path, report: &mut impl FnMut(&str, usize)) {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let entries: Vec<_> = entries.map(|entry| entry.unwrap()).collect();
    report(folder.to_str().unwrap(), entries.len());
    for entry in entries {
        if entry.file_type().unwrap().is_dir() {
            visit(&folder.join(entry.file_name()), report);
        }
    }
}
