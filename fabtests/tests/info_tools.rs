//! `fi_info` and `fi_strerror` as processes: exit codes, streams and the real environment.

use std::process::{Command, Output};

fn run(program: &str, env: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", program]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FI_")) {
        command.env_remove(name);
    }
    let command = command.args(args).envs(env.iter().copied());
    command.output().expect("the program starts")
}

fn fi_info(env: &[(&str, &str)], args: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_fi_info"), env, args)
}

fn fi_strerror(args: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_fi_strerror"), &[], args)
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is UTF-8")
}

#[test]
fn a_provider_that_does_not_exist_fails_with_an_explanation() {
    let output = fi_info(&[], &["-p", "nowhere"]);
    assert_eq!(output.status.code(), Some(61));
    assert_eq!(text(&output.stdout), "");
    let first = "fi_info: no provider matches the request: No data available\n";
    assert!(text(&output.stderr).starts_with(first), "{output:?}");
}

#[test]
fn the_shm_provider_is_listed() {
    let output = fi_info(&[], &["-p", "shm"]);
    assert_eq!(output.status.code(), Some(0));
    let text = text(&output.stdout);
    assert!(
        text.starts_with("provider: shm\n    fabric: shm\n    domain: shm\n"),
        "{text}"
    );
    assert!(
        text.contains("    type: FI_EP_RDM\n    protocol: FI_PROTO_SHM\n"),
        "{text}"
    );
    assert!(text.contains("    type: FI_EP_DGRAM\n"), "{text}");
}

#[test]
fn an_excluded_provider_is_explained() {
    let output = fi_info(&[("FI_PROVIDER", "^shm,tcp,udp")], &[]);
    assert_eq!(output.status.code(), Some(61));
    assert_eq!(
        text(&output.stderr),
        "fi_info: no provider matches the request: No data available\n\
         shm: excluded by FI_PROVIDER=^shm,tcp,udp\n\
         tcp: excluded by FI_PROVIDER=^shm,tcp,udp\n\
         udp: excluded by FI_PROVIDER=^shm,tcp,udp\n"
    );
}

#[test]
fn a_refused_endpoint_type_is_explained() {
    let output = fi_info(&[("FI_PROVIDER", "shm")], &["-t", "FI_EP_MSG"]);
    assert_eq!(output.status.code(), Some(61));
    let line = "\nshm: ep_type: requested FI_EP_MSG, has FI_EP_RDM | FI_EP_DGRAM\n";
    assert!(text(&output.stderr).contains(line), "{output:?}");
}

#[test]
fn a_bad_parameter_of_the_process_is_explained() {
    let output = fi_info(&[("FI_SHM_TX_SIZE", "banana")], &["-p", "shm"]);
    assert_eq!(output.status.code(), Some(61));
    let line = "\nshm: FI_SHM_TX_SIZE=\"banana\": expected a size such as 4096, 64k or 1m";
    assert!(text(&output.stderr).contains(line), "{output:?}");
}

#[test]
fn every_parameter_of_shared_memory_is_listed() {
    let output = fi_info(&[("FI_SHM_TX_SIZE", "128")], &["-g", "SHM"]);
    let text = text(&output.stdout);
    assert!(text.contains("# FI_SHM_TX_SIZE: size_t\n# shm: "), "{text}");
    assert!(text.contains("\nFI_SHM_TX_SIZE=128\n"), "{text}");
}

#[test]
fn the_environment_of_the_process_selects_providers() {
    let output = fi_info(&[("FI_PROVIDER", "nowhere")], &[]);
    assert_eq!(output.status.code(), Some(61));
    let output = fi_info(&[("FI_PROVIDER", "nowhere")], &["-g", "FI_PROVIDER"]);
    assert!(
        text(&output.stdout).contains("\nFI_PROVIDER=nowhere\n"),
        "{output:?}"
    );
}

#[test]
fn a_misspelt_variable_is_reported_unless_logs_are_off() {
    let misspelt = ("FI_PROVIDR", "shm");
    let output = fi_info(&[misspelt], &[]);
    let report = "FI_PROVIDR=\"shm\" is not a parameter; did you mean FI_PROVIDER?";
    assert!(text(&output.stderr).contains(report), "{output:?}");
    let output = fi_info(&[misspelt, ("FI_LOG_LEVEL", "off")], &[]);
    assert!(!text(&output.stderr).contains(report), "{output:?}");
}

#[test]
fn a_bad_log_level_is_reported_and_ignored() {
    let output = fi_info(&[("FI_LOG_LEVEL", "loud")], &["--version"]);
    assert_eq!(output.status.code(), Some(0));
    let warning = "fi_info: FI_LOG_LEVEL=\"loud\": expected one of ";
    assert!(text(&output.stderr).starts_with(warning), "{output:?}");
}

#[test]
fn unknown_options_fail_with_usage() {
    let output = fi_info(&[], &["--bogus"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("--bogus"), "{output:?}");
}

#[test]
fn a_failure_is_printed_as_json() {
    let output = fi_info(&[], &["-p", "nowhere", "--json"]);
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("the output is JSON");
    assert_eq!(json["error"]["errno"], 61);
    assert_eq!(output.status.code(), Some(61));
}

#[test]
fn strerror_prints_the_text_of_an_error_number() {
    let output = fi_strerror(&["-265"]);
    assert_eq!(
        (text(&output.stdout), output.status.code()),
        ("Truncation error\n", Some(0))
    );
    let output = fi_strerror(&["abc"]);
    assert!(text(&output.stdout).starts_with("ERROR: unable to parse 'abc'\n\nUsage: "));
    assert_eq!(output.status.code(), Some(1));
}
