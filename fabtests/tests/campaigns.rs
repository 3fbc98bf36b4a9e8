//! Samples of the campaigns: they kill, stop, interrupt and attack real processes, and all other
//! processes survive. The long form of the tests makes more attempts; docs/FABTESTS.md describes
//! the campaigns.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use selvedge_testkit::long::part;
use selvedge_testkit::skip::{Need, skip};
use serde_json::Value;

#[test]
fn a_process_that_is_killed_at_any_instruction_harms_no_other_process() {
    let rows = run_campaign(part(&["kill", "--rounds", "1"][..], &["kill"]));
    let expected = [
        "open",
        "connect",
        "be-connected",
        "send-inline",
        "send-pool",
        "send-cma",
        "send-bounce",
        "close",
        "receive-inline",
        "receive-pool",
        "receive-cma",
        "receive-bounce",
        "write-inline",
        "write-bounce",
        "read-bounce",
        "atomic",
        "put",
        "atomic-special",
        "be-written",
        "be-read",
        "send-heap",
        "send-heap-fork",
        "send-heap-free",
        "close-heap",
        "receive-heap",
        "write-heap",
        "read-heap",
        "be-read-heap",
        "wake",
        "park",
    ];
    assert!(expected.iter().all(|row| rows.contains(*row)), "{rows:?}");
}

#[test]
fn a_process_that_is_stopped_at_any_instruction_delays_no_other_process_and_loses_nothing() {
    assert!(run_campaign(part(&["stop", "--rounds", "1"][..], &["stop"])).contains("stream"));
}

#[test]
fn incarnations_of_one_name_are_never_mixed_and_their_messages_arrive_in_order() {
    let rows = run_campaign(part(&["restart", "--rounds", "3"][..], &["restart"]));
    assert_eq!(
        rows,
        ["kill", "exit", "close", "any", "memory"]
            .map(str::to_owned)
            .into()
    );
}

#[test]
fn thousands_of_signals_per_second_lose_nothing() {
    run_campaign(part(&["signals", "--rounds", "3"][..], &["signals"]));
}

#[test]
fn hostile_peers_affect_only_themselves() {
    let report = run_for_report(part(&["hostile", "--rounds", "2"][..], &["hostile"]));
    for row in report["rows"].as_array().unwrap() {
        // An attempt proves nothing if its adversary cannot connect. Some find that the target has
        // not noticed the end of the previous one yet.
        let connected = row["figures"]["connected"].as_f64().unwrap();
        let attempted = row["attempted"].as_f64().unwrap();
        assert!(3.0 * connected >= attempted, "{row}");
    }
    let rows = check_survival(&report);
    assert!(
        [
            "flips",
            "in-process",
            "responses",
            "tables",
            "retractions",
            "blocks",
            "announcements",
            "files",
        ]
        .map(|row| rows.contains(row))
            == [true; 8],
        "{rows:?}"
    );
}

#[test]
fn floods_stay_within_the_limit_of_unexpected_messages() {
    run_campaign(&["flood"]);
}

/// The report has a skip where this user may not start a process of another user.
#[test]
fn processes_of_another_user_affect_no_endpoint() {
    let output = run(&["other-user"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text).unwrap();
    match report["skipped"][0].as_str() {
        Some(reason) => skip(Need::Rights, reason),
        None => assert_eq!(
            check_survival(&report),
            ["flood", "linger", "names"].map(str::to_owned).into()
        ),
    }
}

#[test]
fn connecting_processes_leave_connected_ones_their_share() {
    let rows = run_campaign(&["storm"]);
    assert_eq!(rows, ["endpoints", "names"].map(str::to_owned).into());
}

#[test]
#[ignore = "takes half a minute on a busy machine; run it with `-- --ignored`"]
fn requests_of_killed_and_stopped_processes_are_handled_once_or_fail() {
    let report = run_for_report(part(&["service", "--rounds", "1"][..], &["service"]));
    let rows = check_survival(&report);
    assert_eq!(rows.len(), 8, "{rows:?}");
    for row in report["rows"].as_array().unwrap() {
        let figure = |name: &str| row["figures"][name].as_f64().unwrap();
        assert!(figure("responses") > 0.0, "{row}");
        assert!(
            figure("requests") >= figure("responses") + figure("failures"),
            "{row}"
        );
    }
}

#[test]
fn the_same_seed_makes_the_same_attack() {
    let args = [
        "hostile",
        "--only",
        "in-process",
        "--seed",
        "7",
        "--rounds",
        "3",
    ];
    let figures = || run_for_report(&args)["rows"][0]["figures"].clone();
    assert_eq!(figures(), figures());
}

/// Every process of these campaigns has a provider with a defect. A campaign that succeeds despite
/// the defect proves nothing.
#[test]
fn campaigns_notice_defects() {
    let campaigns = [
        ("sends_twice", "kill", "send-pool"),
        ("wrong_errno", "kill", "send-inline"),
        ("hides_errors", "kill", "send-inline"),
        ("twice_atomics", "kill", "atomic-special"),
        ("no_atomics", "stop", "atomic"),
        ("wrong_address", "stop", "write-pool"),
        ("wrong_address", "stop", "put"),
        ("flips_bit_of_large", "restart", "kill"),
        ("completes_twice", "restart", "exit"),
    ];
    // The sample has one defect for each campaign.
    let sample = campaigns.iter().step_by(3);
    for &(defect, campaign, row) in part(sample, campaigns.iter().step_by(1)) {
        // On a busy machine, most targets of a few rounds are killed before their first operation.
        let args = [campaign, "--only", row, "--rounds", "12"];
        let output = run_with_defect(&args, Some(defect));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success(),
            "{args:?} does not notice {defect}"
        );
        assert!(!errors.contains("names no defect"), "{errors}");
    }
}

#[test]
fn a_campaign_without_attempts_does_not_succeed() {
    let output = run(&["kill", "--only", "nothing"]);
    assert!(!output.status.success());
}

/// Runs a campaign whose attempts must all succeed, and returns the names of its rows.
fn run_campaign(args: &[&str]) -> BTreeSet<String> {
    check_survival(&run_for_report(args))
}

/// Checks that every attempt succeeded, and returns the names of the rows.
fn check_survival(report: &Value) -> BTreeSet<String> {
    let rows = report["rows"].as_array().unwrap();
    for row in rows {
        assert!(row["attempted"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["attempted"], row["survived"], "{row}");
    }
    for skipped in report["skipped"].as_array().unwrap() {
        println!("skipped: {skipped}");
    }
    let names = rows.iter().map(|row| row["what"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

fn run_for_report(args: &[&str]) -> Value {
    let output = run(args);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    // A process of the campaign that was not killed has not ended with an error either.
    assert!(!errors.contains("fabtests: "), "{errors}");
    serde_json::from_str(&text).unwrap()
}

fn run(args: &[&str]) -> std::process::Output {
    run_with_defect(args, None)
}

fn run_with_defect(args: &[&str], defect: Option<&str>) -> std::process::Output {
    // Campaigns run one at a time, because several processes of each campaign spin.
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let _guard = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command.arg("campaign").args(args).arg("--json");
    command.envs(defect.map(|defect| ("FABTESTS_DEFECT", defect)));
    command.output().unwrap()
}
