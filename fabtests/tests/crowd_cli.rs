//! `fabtests crowd` as its users see it: as a process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

fn crowd(args: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.arg("crowd").args(args).output().unwrap()
}

#[test]
fn everybody_meets_everybody_in_little_memory() {
    let output = crowd(&["-n", "16", "--rounds", "3", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let census: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(census["processes"], 16);
    assert_eq!(census["messages"], 16 * 15 * 4);
    for field in ["first_contact_ms", "round_ms"] {
        assert!(census[field].as_f64().unwrap() > 0.0, "{census}");
    }
    // What 64 processes may take in all, for as many pairs of peers as there are here.
    let limit = (1 << 20) * (16 * 15) / (64 * 63) + 16 * 4096;
    for field in [&census["pss_kib"][1], &census["shared_kib"]] {
        let kib = field.as_u64().unwrap();
        assert!(kib < limit, "{kib} KiB, at most {limit}: {census}");
    }
    assert!(
        census["descriptors"].as_u64().unwrap() < 16 + 15 * 5,
        "{census}"
    );
}

#[test]
fn a_crowd_that_takes_too_long_is_ended() {
    let output = crowd(&["-n", "4", "--rounds", "100000000", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(" died"), "{errors}");
}
