//! `fi_top` beside real processes that talk, hang, stop, crash and die.

#![expect(clippy::unwrap_used, reason = "a test that goes wrong ends")]

mod member;
mod talker;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use serde_json::Value;
use talker::Talker;

fn top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fi_top"));
    command.args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = top(arguments);
    let said = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{error}");
    said
}

/// The endpoints of a process.
fn endpoints(pid: u32) -> Vec<Value> {
    listed(pid, "endpoints")
}

fn listed(pid: u32, list: &str) -> Vec<Value> {
    let said = text(&["--json", "-i", "0.05", "-p", &pid.to_string()]);
    let said: Value = serde_json::from_str(&said).unwrap();
    said[list].as_array().unwrap().clone()
}

/// The only endpoint of a process, once it is as wanted.
fn endpoint(pid: u32, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let found = endpoints(pid);
        assert!(found.len() <= 1, "{found:?}");
        if let Some(endpoint) = found.into_iter().next().filter(|it| is_wanted(it)) {
            return endpoint;
        }
        assert!(Instant::now() < end, "{:?}", endpoints(pid));
        thread::sleep(Duration::from_millis(20));
    }
}

/// What is said about a process, once it contains all of this.
fn dump(pid: u32, wanted: &[&str]) -> String {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let said = text(&["--dump", &pid.to_string()]);
        if wanted.iter().all(|wanted| said.contains(wanted)) {
            return said;
        }
        assert!(Instant::now() < end, "{said}\nlacks one of {wanted:#?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn count(endpoint: &Value, list: &str, what: &str) -> (u64, u64) {
    let pair = &endpoint[list][what];
    let number = |name: &str| pair[name].as_u64().unwrap();
    (number("operations"), number("bytes"))
}

/// An empty folder. Tests of all packages have theirs in one place.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("top-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
#[ignore = "a process that the other tests start"]
fn talker() {
    talker::run();
}

#[test]
#[ignore = "a process that the other tests start"]
fn member() {
    member::run();
}

#[test]
fn messages_are_counted_by_the_way_they_took_and_seen_from_outside() {
    let way = [("FI_SHM_PROTOCOL", "bounce")];
    let (mut a, mut b) = Talker::pair_with(&way);
    for (number, size) in [(10, 8), (7, 1000), (3, 100_000)] {
        b.order(&format!("recv {number} {size} 1"));
        a.order(&format!("send {number} {size} 1"));
        a.done();
        b.done();
    }
    // Nobody has asked for these.
    a.order("send 5 8 2");
    a.order("send 1 8 3");
    b.order("recv 1 8 3");
    b.done();
    b.order("recv 5 8 2");
    b.done();
    a.done();
    a.done();
    let bytes = 16 * 8 + 7000 + 300_000;
    let sent = endpoint(a.pid(), |it| count(it, "counts", "sent") == (26, bytes));
    assert_eq!(count(&sent, "sent_by_way", "plain"), (16, 128));
    assert_eq!(count(&sent, "sent_by_way", "inject"), (7, 7000));
    assert_eq!(count(&sent, "sent_by_way", "bounce"), (3, 300_000));
    let received = endpoint(b.pid(), |it| count(it, "counts", "received") == (26, bytes));
    assert_eq!(count(&received, "received_by_way", "plain"), (11, 88));
    assert_eq!(count(&received, "received_by_way", "inject"), (7, 7000));
    assert_eq!(count(&received, "received_by_way", "bounce"), (3, 300_000));
    assert_eq!(count(&received, "received_by_way", "unexpected"), (5, 40));
}

#[test]
fn each_side_of_a_hanging_job_says_what_it_waits_for() {
    let (mut a, mut b) = Talker::pair();
    b.order("send 1 8 8");
    b.done();
    // B has sent 8, A waits for 7, B for 9.
    a.order("recv 1 64 7");
    b.order("recv 1 64 9");
    let b_pid = format!("(process {})", b.pid());
    dump(
        a.pid(),
        &[
            "It waits for a tagged message with tag 0x7 from anybody",
            &format!("A message of 8B with tag 0x8 from {} {b_pid}", b.name()),
            "It waits for a tagged message with tag 0x9 from anybody",
        ],
    );
}

#[test]
fn an_endpoint_with_a_layer_around_it_is_one() {
    let talker = Talker::start(&[("COLLECTIVE", "1")]);
    let found = endpoint(talker.pid(), |_| true);
    assert_eq!(found["provider"], "shm");
}

/// What is said of an endpoint while a member does not come.
fn hangs(crew: &mut [Talker], provider: &str) {
    let (last, others) = crew.split_last_mut().unwrap();
    let missing = format!("rank 2, {} (process {})", last.name(), last.pid());
    for member in &mut *others {
        member.order("join");
    }
    let joining = |rank| format!("It joins a group of 3, as rank {rank}, since");
    let said = dump(others[0].pid(), &[&joining(0), &missing]);
    assert!(!said.contains("a tagged message"), "{provider}: {said}");
    last.order("join");
    crew.iter_mut().for_each(Talker::done);
    for way in ["awake", "asleep", "awake"] {
        member::all(crew, &format!("barrier {way}"));
    }
    for (member, way) in crew.iter_mut().zip(["awake", "asleep"]) {
        member.order(&format!("barrier {way}"));
    }
    let absent = format!("{missing}, which has not come to it");
    let place = |rank| {
        format!("It is in Barrier of a group of 3, the group's collective 3, as rank {rank}, since")
    };
    let said = dump(crew[0].pid(), &[&place(0), &place(1), &absent]);
    for wrong in ["wait for messages of each other", "a tagged message"] {
        assert!(!said.contains(wrong), "{provider}: {said}");
    }
    crew[2].order("barrier awake");
    crew.iter_mut().for_each(Talker::done);
    let said = dump(crew[0].pid(), &[]);
    assert!(!said.contains("Barrier"), "{provider}: {said}");
}

#[test]
fn a_member_that_does_not_come_is_named_by_those_that_wait_for_it() {
    for provider in ["shm", "tcp"] {
        hangs(&mut member::crew(provider, 3), provider);
    }
}

#[test]
fn two_that_wait_for_each_other_are_named() {
    let (mut a, mut b) = Talker::pair();
    b.order("send 1 8 1");
    a.order("recv 1 8 1");
    a.done();
    b.done();
    a.order("recv 1 64 7");
    b.order("recv 1 64 9");
    dump(
        a.pid(),
        &["wait for messages of each other, and nothing is under way."],
    );
}

#[test]
fn a_peer_that_is_not_there_and_one_that_is_stopped_are_told_of() {
    let mut alone = Talker::start(&[("TO", "nobody-has-this-name")]);
    alone.order("send 2 8 1");
    dump(
        alone.pid(),
        &["It waits for nobody-has-this-name to be there, with 2 operations"],
    );
    let (mut a, b) = Talker::pair();
    a.order("send 1 8 1");
    a.done();
    b.signal(Signal::SIGSTOP);
    let said = dump(a.pid(), &["The process is stopped."]);
    assert!(said.contains(&format!("process {}", b.pid())), "{said}");
}

#[test]
fn the_page_of_a_process_that_was_killed_is_gone_with_it() {
    let a = Talker::start(&[]);
    let pid = a.pid();
    endpoint(pid, |_| true);
    a.kill();
    assert_eq!(endpoints(pid), Vec::<Value>::new());
    let output = top(&["--dump", &pid.to_string()]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(&format!("process {pid} has no endpoints")),
        "{said}"
    );
}

#[test]
fn a_table_fits_80_columns() {
    let (mut a, mut b) = Talker::pair();
    b.order("recv 100 8 1");
    a.order("send 100 8 1");
    a.done();
    b.done();
    let pids = [a.pid().to_string(), b.pid().to_string()];
    let said = text(&["--once", "-i", "0.05", &pids[0], &pids[1]]);
    assert_eq!(
        said.lines().filter(|line| line.contains("shm")).count(),
        2,
        "{said}"
    );
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn a_signal_of_the_users_choice_writes_the_last_events_out_and_harms_nobody() {
    let folder = folder("signal");
    let dir = folder.to_str().unwrap();
    let env = [("FI_SIGHT_SIGNAL", "USR2"), ("FI_SIGHT_DIR", dir)];
    let (mut a, mut b) = Talker::pair_with(&env);
    b.order("send 1 8 1");
    a.order("recv 1 8 1");
    a.done();
    b.done();
    a.signal(Signal::SIGUSR2);
    let file = folder.join(format!("selvedge-{}.flight", a.pid()));
    wait_for(&file);
    let said = text(&["--flight", file.to_str().unwrap()]);
    assert!(
        said.contains(&format!("shm endpoint {}", a.name())),
        "{said}"
    );
    assert!(
        said.contains(&format!("connected to {}", b.name())),
        "{said}"
    );
    assert!(said.contains("received inline 1 (8B)"), "{said}");
    b.order("recv 1 8 1");
    a.order("send 1 8 1");
    a.done();
    b.done();
}

/// A pipe that nobody reads would hold up whoever opens it for writing.
#[test]
fn what_has_the_name_of_the_file_holds_up_no_signal() {
    let folder = folder("pipe");
    let dir = folder.to_str().unwrap();
    let mut a = Talker::start(&[("FI_SIGHT_SIGNAL", "USR2"), ("FI_SIGHT_DIR", dir)]);
    let file = folder.join(format!("selvedge-{}.flight", a.pid()));
    nix::unistd::mkfifo(&file, Mode::S_IRWXU).unwrap();
    a.signal(Signal::SIGUSR2);
    wait_for(&file);
    assert!(std::fs::metadata(&file).unwrap().is_file());
    // One that cannot be removed stays, and the signal is over all the same.
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    a.signal(Signal::SIGUSR2);
    a.order("handlers");
    assert!(a.answer().starts_with("handlers"));
}

#[test]
fn a_crash_writes_the_last_events_out_and_stays_a_crash() {
    for (how, signal) in [("abort", Signal::SIGABRT), ("fault", Signal::SIGSEGV)] {
        let folder = folder(how);
        let dir = folder.to_str().unwrap();
        let mut a = Talker::start(&[("FI_SIGHT_CRASH", "1"), ("FI_SIGHT_DIR", dir)]);
        let (pid, name) = (a.pid(), a.name().to_owned());
        a.order(how);
        assert_eq!(a.end(), Some(signal), "{how}");
        let file = folder.join(format!("selvedge-{pid}.flight"));
        let said = text(&["--flight", file.to_str().unwrap()]);
        assert!(
            said.contains(&format!("process {pid}, shm endpoint {name}")),
            "{said}"
        );
    }
}

#[test]
fn times_are_told_by_kind_and_size_while_the_program_runs() {
    let (mut a, mut b) = Talker::pair_with(&[("FI_HOOK", "perf")]);
    for (number, size) in [(10, 8), (3, 5000)] {
        b.order(&format!("recv {number} {size} 1"));
        a.order(&format!("send {number} {size} 1"));
        a.done();
        b.done();
    }
    let said = text(&["--latency", &a.pid().to_string(), &b.pid().to_string()]);
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for (pid, operation) in [(a.pid(), "tsend"), (b.pid(), "trecv")] {
        assert!(said.contains(&format!("process {pid} (")), "{said}");
        for (sizes, number) in [("8-15", "10"), ("4-8K", "3")] {
            let is_row = |line: &str| {
                let words: Vec<_> = line.split_whitespace().take(3).collect();
                words == [operation, sizes, number]
            };
            assert!(
                said.lines().any(is_row),
                "{said}\nlacks {operation} {sizes}"
            );
        }
    }
    let rows = endpoint(a.pid(), |_| true)["latency"]
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
    // Whoever has not asked has none.
    let other = Talker::start(&[]);
    assert!(endpoint(other.pid(), |_| true)["latency"].is_null());
    let said = text(&["--latency", &other.pid().to_string()]);
    assert!(said.contains("FI_HOOK=perf"), "{said}");
}

#[test]
fn each_post_is_recorded_told_of_from_outside_and_written_out_by_a_crash() {
    let folder = folder("calls");
    let dir = folder.to_str().unwrap();
    let env = [
        ("FI_HOOK", "flight"),
        ("FI_SIGHT_CRASH", "1"),
        ("FI_SIGHT_SIGNAL", "USR2"),
        ("FI_SIGHT_DIR", dir),
    ];
    let (mut a, mut b) = Talker::pair_with(&env);
    b.order("recv 2 64 5");
    a.order("send 2 8 5");
    a.done();
    b.done();
    a.order("recv 1 4096 9");
    let sent = format!("tsendmsg of 8B with {}, tag 0x5", b.name());
    let done = format!("tsend of 8B with {}, tag 0x5 is complete, after", b.name());
    let wanted = [&*sent, &done, "trecvmsg of 128K, tag 0x9"];
    let said = dump(a.pid(), &wanted);
    assert!(
        said.contains("Its last 5 calls and completions, of 5:"),
        "{said}"
    );
    let calls = endpoint(a.pid(), |_| true)["calls"]
        .as_array()
        .unwrap()
        .clone();
    let posts = calls.iter().filter(|call| call["what"] == "post");
    let posts: Vec<_> = posts.map(|call| call["name"].as_str().unwrap()).collect();
    assert_eq!(posts, ["tsendmsg", "tsendmsg", "trecvmsg"]);
    a.signal(Signal::SIGUSR2);
    let file = folder.join(format!("selvedge-{}.flight", a.pid()));
    wait_for(&file);
    a.signal(Signal::SIGABRT);
    assert_eq!(a.end(), Some(Signal::SIGABRT));
    let said = text(&["--flight", file.to_str().unwrap()]);
    for wanted in wanted {
        assert!(said.contains(wanted), "{said}\nlacks {wanted}");
    }
}

#[test]
fn calls_of_shared_receives_are_told_of_beside_those_of_endpoints() {
    let mut talker = Talker::start(&[("FI_HOOK", "flight;perf")]);
    talker.order("cancel 7");
    talker.done();
    let said = dump(talker.pid(), &["cancel: "]);
    let shared = said.split_once(", shm srx ");
    let (_, shared) = shared.unwrap_or_else(|| panic!("{said}"));
    assert!(
        shared.contains("Its last 1 calls and completions, of 1:"),
        "{said}"
    );
}

#[test]
fn json_has_the_calls_of_shared_receives_beside_endpoints() {
    let mut talker = Talker::start(&[("FI_HOOK", "flight")]);
    talker.order("cancel 7");
    talker.done();
    let found = listed(talker.pid(), "without_page");
    let [srx] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(srx["pid"], talker.pid());
    assert_eq!(srx["provider"], "shm");
    assert!(srx["name"].as_str().unwrap().starts_with("srx "), "{srx}");
    assert!(srx["latency"].is_null(), "{srx}");
    let calls = srx["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{srx}");
    assert_eq!(
        (&calls[0]["name"], &calls[0]["context"]),
        (&"cancel".into(), &7.into())
    );
    assert_eq!(endpoints(talker.pid()).len(), 1);
}

#[test]
fn without_being_asked_nobody_catches_signals() {
    let mut a = Talker::start(&[]);
    a.order("handlers");
    assert_eq!(a.answer(), "handlers none");
}

#[test]
fn a_signal_that_does_not_exist_is_refused_by_name() {
    let said = Talker::refused(&[("FI_SIGHT_SIGNAL", "USR7")]);
    assert!(said.contains("FI_SIGHT_SIGNAL=\"USR7\""), "{said}");
}

fn wait_for(file: &Path) {
    let end = Instant::now() + Duration::from_secs(20);
    let is_whole = || std::fs::metadata(file).is_ok_and(|it| it.len() > 0);
    while !is_whole() {
        assert!(Instant::now() < end, "no {}", file.display());
        thread::sleep(Duration::from_millis(5));
    }
}
