//! `fabtests scale` as a process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use serde_json::Value;

fn scale(args: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.arg("scale").args(args).output().unwrap()
}

#[test]
fn sixteen_processes_connect_all_to_all_in_little_memory() {
    let output = scale(&["-n", "16", "--rounds", "3", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["processes"], 16);
    assert_eq!(report["messages"], 16 * 15 * 4);
    for field in ["first_contact_ms", "round_ms"] {
        assert!(report[field].as_f64().unwrap() > 0.0, "{report}");
    }
    // In KiB: 1 GiB for 64 processes, in proportion to the pairs of peers, and 4 MiB for each
    // process.
    let limit = (1 << 20) * (16 * 15) / (64 * 63) + 16 * 4096;
    for field in [&report["pss_kib"][1], &report["shared_kib"]] {
        let kib = field.as_u64().unwrap();
        assert!(kib < limit, "{kib} KiB, at most {limit}: {report}");
    }
    assert!(
        report["descriptors"].as_u64().unwrap() < 16 + 15 * 5,
        "{report}"
    );
}

#[test]
fn a_scale_test_ends_at_its_timeout() {
    let output = scale(&["-n", "4", "--rounds", "100000000", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(" died"), "{errors}");
}
