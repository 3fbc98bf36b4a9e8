//! The processes of a measurement: the cores that they run on, and how they end.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::command::{exclusive, fabtests, run_failing, run_json};
use crate::object::{array, check_machine, check_row, text};

#[test]
fn both_processes_can_share_a_core() {
    let _guard = exclusive();
    let core = first_core();
    let pin = format!("{core},{core}");
    let report = run_json(&[
        "pingpong", "--pin", &pin, "-S", "8", "-I", "20", "--reps", "1", "--json",
    ]);
    assert_eq!(report["machine"]["one_core"], true);
    assert_eq!(report["machine"]["pinned"], serde_json::json!([core, core]));
    check_row(&report["rows"][0], "tagged_pingpong", 8);
}

#[test]
fn a_client_measures_a_server_in_another_terminal() {
    let _guard = exclusive();
    let mut server = BackgroundCommand::start(&["pingpong", "--server"]);
    let address = server.first_line();
    let client = [
        "pingpong", "--client", &address, "-S", "8,70000", "-I", "20", "--reps", "2", "-c",
        "--json",
    ];
    let report = run_json(&client);
    assert_eq!(array(&report["rows"]).len(), 2);
    check_row(&report["rows"][1], "tagged_pingpong", 70000);
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn a_client_without_a_server_fails_with_the_address() {
    let _guard = exclusive();
    let message = run_failing(&["pingpong", "--client", "fi_shm://absent", "-S", "8"]);
    assert!(message.contains("absent"), "{message}");
}

#[test]
fn a_killed_child_is_reported_and_no_process_remains() {
    let _guard = exclusive();
    let mut pingpong =
        BackgroundCommand::start(&["pingpong", "-S", "8", "-I", "10000000", "--reps", "100"]);
    let children = pingpong.wait_for_children(4);
    let killed = children[0];
    kill(Pid::from_raw(killed), Signal::SIGKILL).unwrap();
    let message = pingpong.end_with_failure();
    assert!(message.contains(&format!("pid {killed}")), "{message}");
    assert!(
        message.contains("SIGKILL") && message.contains("printed"),
        "{message}"
    );
    for child in children {
        assert!(!is_alive(child), "process {child} is still alive");
    }
}

#[test]
fn children_end_with_a_killed_parent() {
    let _guard = exclusive();
    let mut pingpong =
        BackgroundCommand::start(&["pingpong", "-S", "8", "-I", "10000000", "--reps", "100"]);
    let children = pingpong.wait_for_children(4);
    // A stopped process cannot detect that its request socket is closed: only the kernel can end
    // it, by its parent-death signal. The first two children have set that signal, because the
    // parent starts the others later.
    for &child in &children[..2] {
        kill(Pid::from_raw(child), Signal::SIGSTOP).unwrap();
    }
    pingpong.0.kill().unwrap();
    pingpong.0.wait().unwrap();
    wait_until(|| children.iter().all(|&child| !is_alive(child)));
}

#[test]
fn an_interrupt_prints_the_finished_rows_as_a_partial_report() {
    let _guard = exclusive();
    let sizes = ["-S", "8,4096", "-I", "20", "--reps", "60000", "--json"];
    for args in [
        &["bench", "--bench", "msg_pingpong,msg_bw"][..],
        &["pingpong"],
    ] {
        let mut running = BackgroundCommand::start(&[args, &sizes].concat());
        let lines = BufReader::new(running.0.stderr.take().unwrap()).lines();
        let mut lines = lines.map(Result::unwrap);
        let first = lines.next().unwrap();
        assert!(
            first.starts_with("1/") && first.contains("_pingpong of 8: "),
            "{first}"
        );
        let children = running.wait_for_children(2);
        kill(Pid::from_raw(running.0.id().cast_signed()), Signal::SIGINT).unwrap();
        let last = lines.last().unwrap();
        assert!(last.contains("interrupted: the report has"), "{last}");
        assert_eq!(running.0.wait().unwrap().code(), Some(130));
        let report: Value = serde_json::from_reader(running.0.stdout.take().unwrap()).unwrap();
        assert_eq!(report["partial"], true);
        check_machine(&report["machine"]);
        check_row(&report["rows"][0], text(&report["rows"][0], "bench"), 8);
        wait_until(|| children.iter().all(|&child| !is_alive(child)));
    }
}

#[test]
fn a_run_ends_at_its_timeout() {
    let _guard = exclusive();
    let message = run_failing(&["pingpong", "-S", "8", "-I", "10000000", "--timeout", "1"]);
    assert!(message.contains("--timeout"), "{message}");
}

#[test]
fn bad_arguments_are_refused_by_name() {
    let _guard = exclusive();
    for (args, word) in [
        (&["pingpong", "-S", "9x"][..], "9x"),
        (&["pingpong", "--pin", "0,9999"], "9999"),
        (&["pingpong", "-p", "nosuch"], "nosuch"),
        (&["bench", "--bench", "tagged_bandwidth"], "tagged_bw"),
        (&["pingpong", "--server", "--client", "x"], "--client"),
    ] {
        let message = run_failing(args);
        assert!(message.contains(word), "{args:?}: {message}");
    }
}

/// A command in the background. Dropping the value kills it.
struct BackgroundCommand(Child);

impl BackgroundCommand {
    fn start(args: &[&str]) -> Self {
        let mut command = fabtests(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        line.trim().to_owned()
    }

    fn wait_for_children(&mut self, count: usize) -> Vec<i32> {
        let path = format!("/proc/{0}/task/{0}/children", self.0.id());
        let children = || -> Vec<i32> {
            let list = std::fs::read_to_string(&path).unwrap();
            list.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect()
        };
        wait_until(|| children().len() >= count);
        children()
    }

    fn end_with_failure(mut self) -> String {
        let stderr = BufReader::new(self.0.stderr.take().unwrap());
        let message: Vec<_> = stderr.lines().map(Result::unwrap).collect();
        assert!(!self.0.wait().unwrap().success());
        message.join("\n")
    }
}

impl Drop for BackgroundCommand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a condition holds, with a generous timeout.
fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "the condition does not hold in time"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_alive(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended and waits for its parent.
    status
        .rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn first_core() -> usize {
    selvedge_bench::cpu::allowed().unwrap()[0]
}
