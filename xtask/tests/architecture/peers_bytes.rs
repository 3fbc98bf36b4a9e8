//! Lints keep code that reads bytes of peers from panicking.

use std::fs;

use crate::{root, sources};

/// The lint against unchecked indices.
const INDICES: [&str; 1] = ["clippy::indexing_slicing"];
/// The lints against unchecked arithmetic and unchecked indices.
const NUMBERS: [&str; 2] = [
    "clippy::arithmetic_side_effects",
    "clippy::indexing_slicing",
];
/// The lints against panics on a false assumption.
const ASSUMPTIONS: [&str; 3] = [
    "clippy::expect_used",
    "clippy::panic",
    "clippy::unreachable",
];

/// The files that deny these lints, for themselves and for the modules below. The whole workspace
/// denies `clippy::unwrap_used`.
const DENYING_FILES: [(&str, &[&[&str]]); 14] = [
    (
        "providers/kit/src/peers/auth/proof.rs",
        &[&NUMBERS, &ASSUMPTIONS],
    ),
    ("providers/shm/src/lib.rs", &[&ASSUMPTIONS]),
    ("providers/shm/src/connect/packet/mod.rs", &[&INDICES]),
    ("providers/shm/src/transfers/cmd.rs", &[&INDICES]),
    ("providers/shm/src/rma/cmd.rs", &[&INDICES]),
    ("providers/shm/src/rma/target.rs", &[&INDICES]),
    ("providers/shm/src/atomic/command.rs", &[&INDICES]),
    ("providers/shm/src/atomic/response.rs", &[&INDICES]),
    ("providers/tcp/src/lib.rs", &[&ASSUMPTIONS]),
    ("providers/tcp/src/wire/mod.rs", &[&NUMBERS]),
    ("providers/tcp/src/wire/proof.rs", &[&NUMBERS]),
    ("providers/lnx/src/wire.rs", &[&NUMBERS, &ASSUMPTIONS]),
    ("util/cheetah/src/net/wire.rs", &[&NUMBERS, &ASSUMPTIONS]),
    ("util/service/src/wire/mod.rs", &[&NUMBERS, &ASSUMPTIONS]),
];

#[test]
fn code_that_reads_bytes_of_peers_denies_panics() {
    for (file, lints) in DENYING_FILES {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let text: String = text.split_whitespace().collect();
        let attribute = "#![cfg_attr(not(test),deny(";
        let denied = text.split_once(attribute).map(|(_, rest)| rest);
        let denied = denied
            .and_then(|rest| rest.split_once(")]"))
            .map(|(list, _)| list);
        let denied = denied.unwrap_or_else(|| panic!("{file} denies no lint"));
        for lint in lints.iter().copied().flatten() {
            assert!(denied.contains(lint), "{file} does not deny {lint}");
        }
    }
}

/// The package whose processes read each other's memory.
const SHM_SOURCES: &str = "providers/shm/src";

/// The files that may contain assertions, and the maximum number in each. These assertions concern
/// offsets and lengths that were checked on receipt and that only this process can change.
const ASSERTING_FILES: [(&str, usize); 3] = [
    ("providers/shm/src/smr/memory/bytes.rs", 3),
    ("providers/shm/src/smr/memory/mapping.rs", 1),
    ("providers/shm/src/smr/sync.rs", 8),
];

#[test]
fn bytes_of_a_peer_cannot_end_a_process() {
    for (path, text) in sources::files_below(SHM_SOURCES) {
        let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        let asserts = code.lines().filter(|line| is_assert(line)).count();
        let allowed = ASSERTING_FILES.iter().find(|(file, _)| path == *file);
        let allowed = allowed.map_or(0, |&(_, count)| count);
        assert!(
            asserts <= allowed,
            "{path} has {asserts} assertions, more than the {allowed} allowed"
        );
    }
}

/// Whether a line begins an assertion that panics at run time in every build. Compile-time and
/// debug assertions do not count.
fn is_assert(line: &str) -> bool {
    let starts = ["assert!(", "assert_eq!(", "assert_ne!("];
    starts
        .iter()
        .any(|start| line.trim_start().starts_with(start))
}
