//! `fi_pingpong` against libfabric's own, in both roles. Without libfabric's (on Debian:
//! libfabric-bin) the test says so and tests nothing.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use selvedge_testkit::long::is_long;
use selvedge_testkit::skip::{Need, skip};

use crate::pair::{Outcome, Running, command, free_port, start, turn};

/// Providers of ours and of libfabric, and the options of both sides.
const GAMES: &[(&str, &str, &str)] = &[
    ("tcp", "tcp", "-e msg -I 2 -c"),
    ("tcp", "net", "-e rdm -I 1 -c -S all"),
    ("tcp", "net", "-e rdm -m tagged -I 2 -c"),
    ("udp", "udp", "-e dgram -I 3 -c"),
];

const STOCK: &str = "fi_pingpong";

fn stock(line: &str) -> Running {
    let mut command = Command::new(STOCK);
    command.args(line.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::of(&mut command)
}

/// Whether libfabric has this provider for these endpoints.
fn has(provider: &str, options: &str) -> bool {
    let ep_type = options.split_whitespace().nth(1).unwrap();
    let wanted = format!("FI_EP_{}", ep_type.to_uppercase());
    let output = Command::new("fi_info").args(["-p", provider]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&wanted))
}

/// Waits until somebody listens at a port, without knocking: only one is let in.
fn await_listener(port: u16) {
    let start = Instant::now();
    let wanted = format!(":{port:04X} ");
    loop {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut rows = table.lines().map(|row| row.split_whitespace());
        // The second field is the local address, the fourth the state: 0A listens.
        let listens = rows.any(|mut row| {
            let local = row.nth(1).unwrap_or_default();
            format!("{local} ").ends_with(&wanted) && row.nth(1) == Some("0A")
        });
        if listens {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "nobody listens at {port}"
        );
        sleep(Duration::from_millis(5));
    }
}

/// A game at all sizes is left to the long form, which has it beside the others.
fn is_played(line: &str) -> bool {
    is_long() || !line.ends_with("-S all")
}

fn play(line: &str, server: impl FnOnce(&str) -> Running, client: impl FnOnce(&str) -> Running) {
    let _turn = turn();
    let port = free_port();
    let server = server(&format!("{line} -B {port}"));
    await_listener(port);
    let client = client(&format!("{line} -P {port} 127.0.0.1"));
    let [client, server] = [client.end(line), server.end(line)];
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

fn ours(provider: &str) -> impl Fn(&str) -> Running {
    let provider = provider.to_owned();
    move |line| start(&format!("fi_pingpong -p {provider} {line}"))
}

fn theirs(provider: &str) -> impl Fn(&str) -> Running {
    let provider = provider.to_owned();
    move |line| stock(&format!("-p {provider} {line}"))
}

#[test]
fn libfabric_s_pingpong_plays_with_ours_in_both_roles() {
    for &(own, other, line) in GAMES.iter().filter(|(.., line)| is_played(line)) {
        if !has(other, line) {
            skip(
                Need::Libfabric,
                format_args!("no {STOCK} with the provider {other} for {line}"),
            );
            continue;
        }
        play(line, ours(own), theirs(other));
        play(line, theirs(other), ours(own));
    }
}

#[test]
fn ours_plays_with_itself_over_every_provider() {
    let games = [
        ("shm", "-e rdm -I 3 -c"),
        ("shm", "-e dgram -I 3 -c"),
        ("shm", "-e rdm -m tagged -I 3 -c"),
        ("shm", "-e rdm -m tagged -I 3 -c -S all"),
        ("tcp", "-e rdm -I 3 -c"),
        ("tcp", "-e msg -I 3 -c -S 4097"),
        ("udp", "-e dgram -I 3 -c"),
    ];
    for (provider, line) in games.into_iter().filter(|(_, line)| is_played(line)) {
        play(line, ours(provider), ours(provider));
    }
}

#[test]
fn what_pingpong_does_not_know_is_refused() {
    for line in ["-m other", "-z", "-e other"] {
        let refused = Running::of(&mut command(&format!("fi_pingpong {line} 127.0.0.1")));
        let refused = refused.end(line);
        assert_ne!(refused.code, Some(0), "{refused:#?}");
        assert!(refused.errors.contains(&line[..2]), "{refused:#?}");
    }
}
