//! Code that reads what peers send is kept from panicking by lints.

use std::fs;

use crate::{root, sources};

/// The lint against an index that is wrong.
const INDICES: [&str; 1] = ["clippy::indexing_slicing"];
/// Lints against every way in which a length or a number can be wrong.
const NUMBERS: [&str; 2] = [
    "clippy::arithmetic_side_effects",
    "clippy::indexing_slicing",
];
/// Lints against the belief that it is right.
const BELIEFS: [&str; 3] = [
    "clippy::expect_used",
    "clippy::panic",
    "clippy::unreachable",
];

/// Where they are denied, modules below included. `clippy::unwrap_used` is everywhere.
const DENIED: [(&str, &[&[&str]]); 13] = [
    ("providers/kit/src/auth/proof.rs", &[&NUMBERS, &BELIEFS]),
    ("providers/shm/src/lib.rs", &[&BELIEFS]),
    ("providers/shm/src/connect/packet/mod.rs", &[&INDICES]),
    ("providers/shm/src/transfers/cmd.rs", &[&INDICES]),
    ("providers/shm/src/rma/cmd.rs", &[&INDICES]),
    ("providers/shm/src/rma/target.rs", &[&INDICES]),
    ("providers/shm/src/atomic/command.rs", &[&INDICES]),
    ("providers/shm/src/atomic/response.rs", &[&INDICES]),
    ("providers/tcp/src/lib.rs", &[&BELIEFS]),
    ("providers/tcp/src/wire/mod.rs", &[&NUMBERS]),
    ("providers/tcp/src/wire/proof.rs", &[&NUMBERS]),
    ("providers/lnx/src/wire.rs", &[&NUMBERS, &BELIEFS]),
    ("util/cheetah/src/wire.rs", &[&NUMBERS, &BELIEFS]),
];

#[test]
fn what_peers_send_is_read_by_code_that_lints_keep_from_panicking() {
    for (file, lints) in DENIED {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let text: String = text.split_whitespace().collect();
        let attribute = "#![cfg_attr(not(test),deny(";
        let denied = text.split_once(attribute).map(|(_, rest)| rest);
        let denied = denied
            .and_then(|rest| rest.split_once(")]"))
            .map(|(list, _)| list);
        let denied = denied.unwrap_or_else(|| panic!("{file} denies nothing"));
        for lint in lints.iter().copied().flatten() {
            assert!(denied.contains(lint), "{file} does not deny {lint}");
        }
    }
}

/// The package whose processes read each other's memory.
const SHARED: &str = "providers/shm/src";

/// Files of it that may assert, and how often: of offsets and lengths that were checked where they
/// came in, and that this process alone has kept since.
const ASSERTING: [(&str, usize); 3] = [
    ("providers/shm/src/smr/memory/bytes.rs", 3),
    ("providers/shm/src/smr/memory/mapping.rs", 1),
    ("providers/shm/src/smr/sync.rs", 8),
];

#[test]
fn no_word_of_a_peer_can_end_a_process() {
    for (path, text) in sources::under(SHARED) {
        let (code, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        let asserts = code.lines().filter(|line| is_assert(line)).count();
        let argued = ASSERTING.iter().find(|(file, _)| path == *file);
        let argued = argued.map_or(0, |&(_, count)| count);
        assert!(
            asserts <= argued,
            "{path} asserts {asserts} times, and {argued} times are argued for"
        );
    }
}

/// Whether a line of code ends the process if something does not hold: not one that the compiler
/// checks, nor one that is left out of releases.
fn is_assert(line: &str) -> bool {
    let starts = ["assert!(", "assert_eq!(", "assert_ne!("];
    starts
        .iter()
        .any(|start| line.trim_start().starts_with(start))
}
