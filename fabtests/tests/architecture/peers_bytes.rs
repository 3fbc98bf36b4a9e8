//! Code that reads what peers send is kept from panicking by lints.

use std::fs;

use crate::root;

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
const DENIED: [(&str, &[&[&str]]); 5] = [
    ("providers/tcp/src/lib.rs", &[&BELIEFS]),
    ("providers/tcp/src/wire/mod.rs", &[&NUMBERS]),
    ("providers/tcp/src/proof.rs", &[&NUMBERS]),
    ("providers/lnx/src/wire.rs", &[&NUMBERS, &BELIEFS]),
    ("util/cheetah/src/wire.rs", &[&NUMBERS, &BELIEFS]),
];

#[test]
fn what_peers_send_is_read_by_code_that_lints_keep_from_panicking() {
    for (file, lints) in DENIED {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let attribute = "#![cfg_attr(\n    not(test),\n    deny(";
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
