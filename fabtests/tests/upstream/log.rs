//! The log output of programs, filtered by `FI_LOG_LEVEL`, `FI_LOG_PROV` and `FI_LOG_SUBSYS`.

use crate::pair::{Outcome, free_port, pair_with, succeed};

/// Runs a program that must succeed, and returns the log lines of both processes: provider,
/// subsystem, level and text.
fn run_for_log(variables: &[(&str, &str)]) -> Vec<[String; 4]> {
    let line = "fi_rdm_pingpong -p tcp -I 5 -S 64";
    let outcomes: [Outcome; 2] = pair_with(line, &free_port().to_string(), variables);
    succeed(&outcomes);
    let errors = outcomes.iter().map(|outcome| outcome.errors.as_str());
    let errors: String = errors.collect();
    let logged = errors
        .lines()
        .filter_map(|line| line.strip_prefix("selvedge:"));
    logged
        .map(|line| {
            let mut fields = line.splitn(6, ':').skip(2).map(str::to_owned);
            std::array::from_fn(|_| fields.next().unwrap_or_default())
        })
        .collect()
}

fn count_lines(lines: &[[String; 4]], [provider, subsystem, text]: [&str; 3]) -> usize {
    let matches =
        |line: &&[String; 4]| line[0] == provider && line[1] == subsystem && line[3].contains(text);
    lines.iter().filter(matches).count()
}

#[test]
fn a_successful_program_logs_nothing_by_default() {
    assert_eq!(run_for_log(&[]), [[""; 4]; 0]);
}

#[test]
fn discovery_names_and_connections_are_logged() {
    let lines = run_for_log(&[("FI_LOG_LEVEL", "info")]);
    for expected in [
        ["core", "core", "discovery: tcp: taken"],
        ["tcp", "domain", " is open"],
        ["tcp", "ep_ctrl", " is open"],
        ["tcp", "ep_ctrl", ": connected to "],
        ["tcp", "ep_ctrl", " is closed"],
    ] {
        assert!(
            count_lines(&lines, expected) >= 2,
            "{expected:?} in {lines:#?}"
        );
    }
}

#[test]
fn lines_are_filtered_by_provider_and_subsystem() {
    let level = ("FI_LOG_LEVEL", "debug");
    let core = run_for_log(&[level, ("FI_LOG_PROV", "core")]);
    assert!(
        count_lines(&core, ["core", "core", "discovery"]) > 0,
        "{core:#?}"
    );
    assert!(core.iter().all(|line| line[0] == "core"), "{core:#?}");
    let names = run_for_log(&[level, ("FI_LOG_PROV", "tcp"), ("FI_LOG_SUBSYS", "ep_ctrl")]);
    assert!(
        count_lines(&names, ["tcp", "ep_ctrl", "is open"]) > 0,
        "{names:#?}"
    );
    assert!(
        names
            .iter()
            .all(|line| line[0] == "tcp" && line[1] == "ep_ctrl"),
        "{names:#?}"
    );
    let others = run_for_log(&[level, ("FI_LOG_PROV", "^tcp,core")]);
    assert!(
        others
            .iter()
            .all(|line| line[0] != "tcp" && line[0] != "core"),
        "{others:#?}"
    );
}
