//! `fi_pingpong` with libfabric's program as the peer, in both roles. The test is skipped if
//! libfabric's program (on Debian: libfabric-bin) is not installed.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use selvedge_testkit::long::is_long;
use selvedge_testkit::skip::{Need, skip};

use crate::pair::{Outcome, ProcessGuard, command, exclusive, free_port, start};

/// This suite's provider, libfabric's provider, and the options of both sides.
const RUNS: &[(&str, &str, &str)] = &[
    ("tcp", "tcp", "-e msg -I 2 -c"),
    ("tcp", "net", "-e rdm -I 1 -c -S all"),
    ("tcp", "net", "-e rdm -m tagged -I 2 -c"),
    ("udp", "udp", "-e dgram -I 3 -c"),
];

const LIBFABRIC_PINGPONG: &str = "fi_pingpong";

fn start_libfabric(line: &str) -> ProcessGuard {
    let mut command = Command::new(LIBFABRIC_PINGPONG);
    command.args(line.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    ProcessGuard::spawn(&mut command)
}

/// Whether libfabric has this provider with the endpoint type of the options.
fn is_available(provider: &str, options: &str) -> bool {
    let ep_type = options.split_whitespace().nth(1).unwrap();
    let expected = format!("FI_EP_{}", ep_type.to_uppercase());
    let output = Command::new("fi_info").args(["-p", provider]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&expected))
}

/// Waits until a process listens on a port, without connecting: the server accepts one connection
/// only.
fn await_listener(port: u16) {
    let start = Instant::now();
    let expected = format!(":{port:04X} ");
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = table.lines().map(|row| row.split_whitespace());
        // The second field is the local address, the fourth the state; 0A means listening.
        let is_listening = rows.any(|mut row| {
            let local = row.nth(1).unwrap_or_default();
            format!("{local} ").ends_with(&expected) && row.nth(1) == Some("0A")
        });
        if is_listening {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "no process listens on port {port}"
        );
        sleep(Duration::from_millis(5));
    }
}

/// Whether this form of the tests includes a run: runs with all sizes belong to the long form.
fn is_selected(line: &str) -> bool {
    is_long() || !line.ends_with("-S all")
}

/// Runs a server and a client, which must print the same rows.
fn run_pair(
    line: &str,
    server: impl FnOnce(&str) -> ProcessGuard,
    client: impl FnOnce(&str) -> ProcessGuard,
) {
    let _guard = exclusive();
    let port = free_port();
    let server = server(&format!("{line} -B {port}"));
    await_listener(port);
    let client = client(&format!("{line} -P {port} 127.0.0.1"));
    let [client, server] = [client.wait(line), server.wait(line)];
    for side in [&client, &server] {
        assert_eq!(side.code, Some(0), "{line}: {client:#?} {server:#?}");
    }
    let sizes = |outcome: &Outcome| -> Vec<String> {
        let rows = outcome.rows();
        let cells = rows.iter().map(|row| row[..4].join(" "));
        cells.collect()
    };
    let rows = sizes(&client);
    assert!(!rows.is_empty(), "{client:#?}");
    assert_eq!(rows, sizes(&server), "{line}");
}

fn selvedge(provider: &str) -> impl Fn(&str) -> ProcessGuard {
    let provider = provider.to_owned();
    move |line| start(&format!("fi_pingpong -p {provider} {line}"))
}

fn libfabric(provider: &str) -> impl Fn(&str) -> ProcessGuard {
    let provider = provider.to_owned();
    move |line| start_libfabric(&format!("-p {provider} {line}"))
}

#[test]
fn pingpong_works_with_libfabric_in_both_roles() {
    for &(selvedge_provider, libfabric_provider, line) in
        RUNS.iter().filter(|(.., line)| is_selected(line))
    {
        if !is_available(libfabric_provider, line) {
            skip(
                Need::Libfabric,
                format_args!(
                    "no {LIBFABRIC_PINGPONG} with the provider {libfabric_provider} for {line}"
                ),
            );
            continue;
        }
        run_pair(
            line,
            selvedge(selvedge_provider),
            libfabric(libfabric_provider),
        );
        run_pair(
            line,
            libfabric(libfabric_provider),
            selvedge(selvedge_provider),
        );
    }
}

#[test]
fn pingpong_works_with_itself_over_every_provider() {
    let runs = [
        ("shm", "-e rdm -I 3 -c"),
        ("shm", "-e dgram -I 3 -c"),
        ("shm", "-e rdm -m tagged -I 3 -c"),
        ("shm", "-e rdm -m tagged -I 3 -c -S all"),
        ("tcp", "-e rdm -I 3 -c"),
        ("tcp", "-e msg -I 3 -c -S 4097"),
        ("udp", "-e dgram -I 3 -c"),
    ];
    for (provider, line) in runs.into_iter().filter(|(_, line)| is_selected(line)) {
        run_pair(line, selvedge(provider), selvedge(provider));
    }
}

#[test]
fn unknown_options_of_pingpong_are_refused() {
    for line in ["-m other", "-z", "-e other"] {
        let refused = ProcessGuard::spawn(&mut command(&format!("fi_pingpong {line} 127.0.0.1")));
        let refused = refused.wait(line);
        assert_ne!(refused.code, Some(0), "{refused:#?}");
        assert!(refused.errors.contains(&line[..2]), "{refused:#?}");
    }
}
