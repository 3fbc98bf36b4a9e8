//! The unit programs, and the patterns and collectives of several processes.

use selvedge_testkit::long::part;

use crate::pair::{Outcome, exclusive, free_port, run_process, start, succeed};

#[test]
fn unit_programs_pass_all_cases() {
    for (line, passed) in [
        ("fi_getinfo_test -s 127.0.0.1 127.0.0.1", 23),
        ("fi_av_test -g 192.168.10.1 -n 5 -e rdm", 11),
        ("fi_av_test -g 192.168.10.1 -n 1 -e dgram", 11),
        ("fi_dom_test -n 3", 1),
        ("fi_eq_test", 6),
        ("fi_cq_test -L 100", 5),
        ("fi_mr_test", 4),
        ("fi_cntr_test", 2),
        ("fi_setopt_test", 10),
    ] {
        let outcome = run_process(&format!("{line} -p shm"));
        let summary = format!("Summary: {passed} passed, 0 failed");
        assert!(outcome.text.contains(&summary), "{line}: {outcome:#?}");
        succeed(&[outcome]);
    }
}

#[test]
fn patterns_of_several_processes_succeed() {
    for (ranks, options) in [
        (3, "-x msg"),
        (3, "-x rma"),
        (5, "-x msg -S 9000"),
        (2, "-x rma -z ring"),
    ] {
        let _guard = exclusive();
        let line = format!(
            "fi_multinode -p shm -I 5 -n {ranks} {options} -E={}",
            free_port()
        );
        let processes: Vec<_> = (0..ranks).map(|_| start(&line)).collect();
        let outcomes: Vec<_> = processes
            .into_iter()
            .map(|process| process.wait(&line))
            .collect();
        succeed(&outcomes);
        let patterns = outcomes.iter().map(|outcome| outcome.text.lines().count());
        assert_eq!(
            patterns.sum::<usize>(),
            if options.contains("-z") { 1 } else { 4 }
        );
    }
}

#[test]
fn an_incomplete_job_names_the_missing_processes_and_ends() {
    let port = free_port();
    let line = format!("fi_multinode_coll -p shm -n 3 --timeout 1 -E={port}");
    let outcome = start(&line).wait(&line);
    assert_eq!(outcome.code, Some(110), "{}", outcome.errors);
    let notice = format!("waiting for 2 more processes of the job to connect to 127.0.0.1:{port}");
    assert!(outcome.errors.contains(&notice), "{}", outcome.errors);
}

#[test]
fn collectives_of_several_processes_have_their_results() {
    for (provider, ranks) in [("shm", 3), ("shm", 5), ("tcp", 4)] {
        succeed(&collectives(ranks, &format!("-p {provider} -I 3")));
    }
}

#[test]
fn collectives_are_measured_with_more_members_than_processors() {
    for &(ranks, waiting) in part(&[(4, "sread")][..], &[(8, "spin"), (4, "sread")]) {
        let outcomes = collectives(ranks, &format!("-p shm -T -c {waiting}"));
        succeed(&outcomes);
        let output: String = outcomes
            .iter()
            .map(|outcome| outcome.text.as_str())
            .collect();
        for label in ["messages", "barrier", "allreduce"] {
            let lines = output.lines().filter(|line| line.starts_with(label));
            assert_eq!(lines.count(), 1, "{label} in {output}");
        }
    }
}

fn collectives(ranks: usize, options: &str) -> Vec<Outcome> {
    let _guard = exclusive();
    let line = format!("fi_multinode_coll {options} -n {ranks} -E={}", free_port());
    let processes: Vec<_> = (0..ranks).map(|_| start(&line)).collect();
    let outcomes = processes.into_iter().map(|process| process.wait(&line));
    outcomes.collect()
}
