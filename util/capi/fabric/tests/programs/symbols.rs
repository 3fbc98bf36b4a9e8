//! The symbols that the library exports.

use std::collections::BTreeSet;
use std::process::Command;

use crate::harness::{has, library_folder, output_of};

/// Every exported name with its versions.
const NAMES: [(&str, &[u32]); 17] = [
    ("fi_getinfo", &[0, 1, 2, 3, 7, 8, 9, 10]),
    ("fi_freeinfo", &[0, 1, 2, 3, 7, 8, 9, 10]),
    ("fi_dupinfo", &[0, 1, 2, 3, 7, 8, 9, 10]),
    ("fi_fabric", &[0, 1]),
    ("fi_fabric2", &[8]),
    ("fi_version", &[0]),
    ("fi_strerror", &[0]),
    ("fi_tostr", &[0]),
    ("fi_tostr_r", &[4]),
    ("fi_open", &[5]),
    ("fi_log", &[0]),
    ("fi_log_enabled", &[0]),
    ("fi_log_ready", &[6]),
    ("fi_param_define", &[0]),
    ("fi_param_get", &[0]),
    ("fi_getparams", &[0]),
    ("fi_freeparams", &[0]),
];

#[test]
fn the_library_exports_libfabric_s_names_under_their_versions_and_no_others() {
    if !has(&["objdump"]) {
        return;
    }
    let file = library_folder().join("libfabric.so.1");
    let text = output_of(Command::new("objdump").args(["-T", "-p"]).arg(&file));
    assert!(
        text.contains("SONAME               libfabric.so.1"),
        "{text}"
    );
    let exported = text.lines().filter(|line| line.contains(" .text\t"));
    let actual: BTreeSet<String> = exported
        .map(|line| {
            let mut words = line.split_whitespace().rev();
            let name = words.next().unwrap();
            let version = words.next().unwrap().trim_matches(['(', ')']);
            format!("{name} {version}")
        })
        .collect();
    let expected = NAMES.iter().flat_map(|(name, minors)| {
        minors
            .iter()
            .map(move |minor| format!("{name} FABRIC_1.{minor}"))
    });
    assert_eq!(actual, expected.collect());
}
