//! Tests of `fi_top` with processes that exchange messages, hang, crash, are stopped or are killed.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod endpoint_process;
mod member;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use endpoint_process::EndpointProcess;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;

fn run_fi_top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fi_top"));
    command.args(arguments).output().unwrap()
}

/// Runs `fi_top`, which must succeed, and returns its output.
fn fi_top(arguments: &[&str]) -> String {
    let output = run_fi_top(arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{error}");
    text
}

/// Returns the endpoints of a process in the JSON output.
fn endpoints(pid: u32) -> Vec<Value> {
    read_json_list(pid, "endpoints")
}

fn read_json_list(pid: u32, list: &str) -> Vec<Value> {
    let output = fi_top(&["--json", "-i", "0.05", "-p", &pid.to_string()]);
    let output: Value = serde_json::from_str(&output).unwrap();
    output[list].as_array().unwrap().clone()
}

/// Waits until `predicate` accepts the only endpoint of a process, and returns the endpoint.
fn wait_for_endpoint(pid: u32, predicate: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let all = endpoints(pid);
        assert!(all.len() <= 1, "{all:?}");
        if let Some(endpoint) = all.into_iter().next().filter(&predicate) {
            return endpoint;
        }
        assert!(Instant::now() < deadline, "{:?}", endpoints(pid));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until the dump of a process contains all expected texts, and returns the dump.
fn wait_for_dump(pid: u32, expected: &[&str]) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let output = fi_top(&["--dump", &pid.to_string()]);
        if expected.iter().all(|text| output.contains(text)) {
            return output;
        }
        assert!(
            Instant::now() < deadline,
            "{output}\nlacks one of {expected:#?}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the operations and the bytes of a counter.
fn count(endpoint: &Value, list: &str, counter: &str) -> (u64, u64) {
    let pair = &endpoint[list][counter];
    let number = |name: &str| pair[name].as_u64().unwrap();
    (number("operations"), number("bytes"))
}

/// Creates an empty folder in the directory that the tests of all packages share.
fn create_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("top-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
#[ignore = "a process that the other tests start"]
fn endpoint_process() {
    endpoint_process::run();
}

#[test]
#[ignore = "a process that the other tests start"]
fn member() {
    member::run();
}

#[test]
fn messages_are_counted_by_protocol_and_visible_to_fi_top() {
    let env = [("FI_SHM_PROTOCOL", "bounce")];
    let (mut a, mut b) = EndpointProcess::pair_with(&env);
    for (number, size) in [(10, 8), (7, 1000), (3, 100_000)] {
        b.send_command(&format!("recv {number} {size} 1"));
        a.send_command(&format!("send {number} {size} 1"));
        a.wait_done();
        b.wait_done();
    }
    // These messages arrive before their receives are posted.
    a.send_command("send 5 8 2");
    a.send_command("send 1 8 3");
    b.send_command("recv 1 8 3");
    b.wait_done();
    b.send_command("recv 5 8 2");
    b.wait_done();
    a.wait_done();
    a.wait_done();
    let bytes = 16 * 8 + 7000 + 300_000;
    let sent = wait_for_endpoint(a.pid(), |endpoint| {
        count(endpoint, "counts", "sent") == (26, bytes)
    });
    assert_eq!(count(&sent, "sent_by_way", "plain"), (16, 128));
    assert_eq!(count(&sent, "sent_by_way", "inject"), (7, 7000));
    assert_eq!(count(&sent, "sent_by_way", "bounce"), (3, 300_000));
    let received = wait_for_endpoint(b.pid(), |endpoint| {
        count(endpoint, "counts", "received") == (26, bytes)
    });
    assert_eq!(count(&received, "received_by_way", "plain"), (11, 88));
    assert_eq!(count(&received, "received_by_way", "inject"), (7, 7000));
    assert_eq!(count(&received, "received_by_way", "bounce"), (3, 300_000));
    assert_eq!(count(&received, "received_by_way", "unexpected"), (5, 40));
}

#[test]
fn the_dump_of_a_hanging_job_describes_both_sides() {
    let (mut a, mut b) = EndpointProcess::pair();
    b.send_command("send 1 8 8");
    b.wait_done();
    // B has sent a message with tag 8, A waits for tag 7, B for tag 9.
    a.send_command("recv 1 64 7");
    b.send_command("recv 1 64 9");
    let b_pid = format!("(process {})", b.pid());
    wait_for_dump(
        a.pid(),
        &[
            "It waits for a tagged message with tag 0x7 from any peer",
            &format!("A message of 8B with tag 0x8 from {} {b_pid}", b.name()),
            "It waits for a tagged message with tag 0x9 from any peer",
        ],
    );
}

#[test]
fn an_endpoint_with_a_layer_has_one_page() {
    let endpoint_process = EndpointProcess::start(&[("COLLECTIVE", "1")]);
    let endpoint = wait_for_endpoint(endpoint_process.pid(), |_| true);
    assert_eq!(endpoint["provider"], "shm");
}

/// Checks the dump while one member of a group has not entered a collective.
fn check_missing_member(members: &mut [EndpointProcess], provider: &str) {
    let (last, others) = members.split_last_mut().unwrap();
    let last_member = format!("rank 2, {} (process {})", last.name(), last.pid());
    for member in &mut *others {
        member.send_command("join");
    }
    let joining = |rank| format!("It joins a group of 3, as rank {rank}, since");
    let output = wait_for_dump(others[0].pid(), &[&joining(0), &last_member]);
    assert!(!output.contains("a tagged message"), "{provider}: {output}");
    last.send_command("join");
    members.iter_mut().for_each(EndpointProcess::wait_done);
    for mode in ["polling", "parked", "polling"] {
        member::command_all(members, &format!("barrier {mode}"));
    }
    for (member, mode) in members.iter_mut().zip(["polling", "parked"]) {
        member.send_command(&format!("barrier {mode}"));
    }
    let missing_member = format!("{last_member}, which has not entered it");
    let in_barrier = |rank| {
        format!("It is in Barrier of a group of 3, the group's collective 3, as rank {rank}, since")
    };
    let output = wait_for_dump(
        members[0].pid(),
        &[&in_barrier(0), &in_barrier(1), &missing_member],
    );
    for unexpected in ["wait for messages of each other", "a tagged message"] {
        assert!(!output.contains(unexpected), "{provider}: {output}");
    }
    members[2].send_command("barrier polling");
    members.iter_mut().for_each(EndpointProcess::wait_done);
    let output = wait_for_dump(members[0].pid(), &[]);
    assert!(!output.contains("Barrier"), "{provider}: {output}");
}

#[test]
fn waiting_members_name_the_missing_member() {
    for provider in ["shm", "tcp"] {
        check_missing_member(&mut member::start_members(provider, 3), provider);
    }
}

#[test]
fn endpoints_that_wait_for_each_other_are_reported() {
    let (mut a, mut b) = EndpointProcess::pair();
    b.send_command("send 1 8 1");
    a.send_command("recv 1 8 1");
    a.wait_done();
    b.wait_done();
    a.send_command("recv 1 64 7");
    b.send_command("recv 1 64 9");
    wait_for_dump(
        a.pid(),
        &["wait for messages of each other, and no operation is in progress."],
    );
}

#[test]
fn an_absent_and_a_stopped_peer_are_reported() {
    let mut lone_sender = EndpointProcess::start(&[("TO", "absent-peer")]);
    lone_sender.send_command("send 2 8 1");
    wait_for_dump(
        lone_sender.pid(),
        &["It waits for absent-peer to start, with 2 operations"],
    );
    let (mut a, b) = EndpointProcess::pair();
    a.send_command("send 1 8 1");
    a.wait_done();
    b.signal(Signal::SIGSTOP);
    let output = wait_for_dump(a.pid(), &["The process is stopped."]);
    assert!(output.contains(&format!("process {}", b.pid())), "{output}");
}

#[test]
fn the_page_of_a_killed_process_disappears() {
    let a = EndpointProcess::start(&[]);
    let pid = a.pid();
    wait_for_endpoint(pid, |_| true);
    a.kill();
    assert_eq!(endpoints(pid), Vec::<Value>::new());
    let output = run_fi_top(&["--dump", &pid.to_string()]);
    assert!(!output.status.success());
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.contains(&format!("process {pid} has no endpoints")),
        "{output}"
    );
}

#[test]
fn a_table_fits_80_columns() {
    let (mut a, mut b) = EndpointProcess::pair();
    b.send_command("recv 100 8 1");
    a.send_command("send 100 8 1");
    a.wait_done();
    b.wait_done();
    let pids = [a.pid().to_string(), b.pid().to_string()];
    let output = fi_top(&["--once", "-i", "0.05", &pids[0], &pids[1]]);
    assert_eq!(
        output.lines().filter(|line| line.contains("shm")).count(),
        2,
        "{output}"
    );
    for line in output.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_configured_signal_writes_a_flight_record_and_the_process_continues() {
    let folder = create_folder("signal");
    let dir = folder.to_str().unwrap();
    let env = [("FI_SIGHT_SIGNAL", "USR2"), ("FI_SIGHT_DIR", dir)];
    let (mut a, mut b) = EndpointProcess::pair_with(&env);
    b.send_command("send 1 8 1");
    a.send_command("recv 1 8 1");
    a.wait_done();
    b.wait_done();
    a.signal(Signal::SIGUSR2);
    let file = folder.join(format!("selvedge-{}.flight", a.pid()));
    wait_for_file(&file);
    let output = fi_top(&["--flight", file.to_str().unwrap()]);
    assert!(
        output.contains(&format!("shm endpoint {}", a.name())),
        "{output}"
    );
    assert!(
        output.contains(&format!("connected to {}", b.name())),
        "{output}"
    );
    assert!(output.contains("received inline 1 (8B)"), "{output}");
    b.send_command("recv 1 8 1");
    a.send_command("send 1 8 1");
    a.wait_done();
    b.wait_done();
}

/// The open of a pipe for writing would block without a reader.
#[test]
fn an_existing_pipe_or_folder_does_not_block_the_flight_record() {
    let folder = create_folder("pipe");
    let dir = folder.to_str().unwrap();
    let mut a = EndpointProcess::start(&[("FI_SIGHT_SIGNAL", "USR2"), ("FI_SIGHT_DIR", dir)]);
    let file = folder.join(format!("selvedge-{}.flight", a.pid()));
    nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
    a.signal(Signal::SIGUSR2);
    wait_for_file(&file);
    assert!(std::fs::metadata(&file).unwrap().is_file());
    // A folder cannot be replaced; the signal handler still returns.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    a.signal(Signal::SIGUSR2);
    a.send_command("handlers");
    assert!(a.read_report().starts_with("handlers"));
}

#[test]
fn a_crash_writes_a_flight_record_and_keeps_its_signal() {
    for (command, signal) in [("abort", Signal::SIGABRT), ("fault", Signal::SIGSEGV)] {
        let folder = create_folder(command);
        let dir = folder.to_str().unwrap();
        let mut a = EndpointProcess::start(&[("FI_SIGHT_CRASH", "1"), ("FI_SIGHT_DIR", dir)]);
        let (pid, name) = (a.pid(), a.name().to_owned());
        a.send_command(command);
        assert_eq!(a.wait_signal(), Some(signal), "{command}");
        let file = folder.join(format!("selvedge-{pid}.flight"));
        let output = fi_top(&["--flight", file.to_str().unwrap()]);
        assert!(
            output.contains(&format!("process {pid}, shm endpoint {name}")),
            "{output}"
        );
    }
}

#[test]
fn latencies_are_shown_by_operation_and_size_while_the_program_runs() {
    let (mut a, mut b) = EndpointProcess::pair_with(&[("FI_HOOK", "perf")]);
    for (number, size) in [(10, 8), (3, 5000)] {
        b.send_command(&format!("recv {number} {size} 1"));
        a.send_command(&format!("send {number} {size} 1"));
        a.wait_done();
        b.wait_done();
    }
    let output = fi_top(&["--latency", &a.pid().to_string(), &b.pid().to_string()]);
    for line in output.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for (pid, operation) in [(a.pid(), "tsend"), (b.pid(), "trecv")] {
        assert!(output.contains(&format!("process {pid} (")), "{output}");
        for (sizes, number) in [("8-15", "10"), ("4-8K", "3")] {
            let is_row = |line: &str| {
                let words: Vec<_> = line.split_whitespace().take(3).collect();
                words == [operation, sizes, number]
            };
            assert!(
                output.lines().any(is_row),
                "{output}\nlacks {operation} {sizes}"
            );
        }
    }
    let rows = wait_for_endpoint(a.pid(), |_| true)["latency"]
        .as_array()
        .unwrap()
        .clone();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (&row["operation"], &row["bytes_from"], &row["count"]))
        .collect();
    assert_eq!(
        rows,
        [
            (&"tsend".into(), &8.into(), &10.into()),
            (&"tsend".into(), &4096.into(), &3.into()),
        ]
    );
    // Without the hook no latencies are recorded.
    let other = EndpointProcess::start(&[]);
    assert!(wait_for_endpoint(other.pid(), |_| true)["latency"].is_null());
    let output = fi_top(&["--latency", &other.pid().to_string()]);
    assert!(output.contains("FI_HOOK=perf"), "{output}");
}

#[test]
fn each_post_is_logged_shown_by_fi_top_and_written_at_a_crash() {
    let folder = create_folder("calls");
    let dir = folder.to_str().unwrap();
    let env = [
        ("FI_HOOK", "flight"),
        ("FI_SIGHT_CRASH", "1"),
        ("FI_SIGHT_SIGNAL", "USR2"),
        ("FI_SIGHT_DIR", dir),
    ];
    let (mut a, mut b) = EndpointProcess::pair_with(&env);
    b.send_command("recv 2 64 5");
    a.send_command("send 2 8 5");
    a.wait_done();
    b.wait_done();
    a.send_command("recv 1 4096 9");
    let post = format!("tsendmsg of 8B with {}, tag 0x5", b.name());
    let completion = format!("tsend of 8B with {}, tag 0x5 is complete, after", b.name());
    let expected = [&*post, &completion, "trecvmsg of 128K, tag 0x9"];
    let output = wait_for_dump(a.pid(), &expected);
    assert!(
        output.contains("The last 5 calls and completions, of 5:"),
        "{output}"
    );
    let calls = wait_for_endpoint(a.pid(), |_| true)["calls"]
        .as_array()
        .unwrap()
        .clone();
    let posts = calls.iter().filter(|call| call["what"] == "post");
    let posts: Vec<_> = posts.map(|call| call["name"].as_str().unwrap()).collect();
    assert_eq!(posts, ["tsendmsg", "tsendmsg", "trecvmsg"]);
    a.signal(Signal::SIGUSR2);
    let file = folder.join(format!("selvedge-{}.flight", a.pid()));
    wait_for_file(&file);
    std::fs::remove_file(&file).unwrap();
    a.signal(Signal::SIGABRT);
    assert_eq!(a.wait_signal(), Some(Signal::SIGABRT));
    let output = fi_top(&["--flight", file.to_str().unwrap()]);
    for expected in expected {
        assert!(output.contains(expected), "{output}\nlacks {expected}");
    }
}

#[test]
fn the_dump_shows_calls_of_shared_receives() {
    let mut endpoint_process = EndpointProcess::start(&[("FI_HOOK", "flight;perf")]);
    endpoint_process.send_command("cancel 7");
    endpoint_process.wait_done();
    let output = wait_for_dump(endpoint_process.pid(), &["cancel: "]);
    let srx_text = output.split_once(", shm srx ");
    let (_, srx_text) = srx_text.unwrap_or_else(|| panic!("{output}"));
    assert!(
        srx_text.contains("The last 1 calls and completions, of 1:"),
        "{output}"
    );
}

#[test]
fn json_has_the_calls_of_shared_receives() {
    let mut endpoint_process = EndpointProcess::start(&[("FI_HOOK", "flight")]);
    endpoint_process.send_command("cancel 7");
    endpoint_process.wait_done();
    let without_page = read_json_list(endpoint_process.pid(), "without_page");
    let [srx] = &without_page[..] else {
        panic!("{without_page:?}");
    };
    assert_eq!(srx["pid"], endpoint_process.pid());
    assert_eq!(srx["provider"], "shm");
    assert!(srx["name"].as_str().unwrap().starts_with("srx "), "{srx}");
    assert!(srx["latency"].is_null(), "{srx}");
    let calls = srx["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{srx}");
    assert_eq!(
        (&calls[0]["name"], &calls[0]["context"]),
        (&"cancel".into(), &7.into())
    );
    assert_eq!(endpoints(endpoint_process.pid()).len(), 1);
}

#[test]
fn signals_are_not_caught_by_default() {
    let mut a = EndpointProcess::start(&[]);
    a.send_command("handlers");
    assert_eq!(a.read_report(), "handlers none");
}

#[test]
fn a_signal_that_does_not_exist_is_refused_by_name() {
    let output = EndpointProcess::start_error(&[("FI_SIGHT_SIGNAL", "USR7")]);
    assert!(output.contains("FI_SIGHT_SIGNAL=\"USR7\""), "{output}");
}

/// Waits until `file` exists and is not empty.
fn wait_for_file(file: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_written = || std::fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0);
    while !is_written() {
        assert!(Instant::now() < deadline, "no {}", file.display());
        thread::sleep(Duration::from_millis(5));
    }
}
