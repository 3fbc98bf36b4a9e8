//! Two hosts, emulated by network namespaces with a virtual cable, with two processes each. The
//! namespaces share `/dev/shm` and the numbers of processes. Without the right to create
//! namespaces, or without `ip` (on Debian: iproute2), the test prints the reason and is skipped.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use selvedge::{Address, Errno, FiAddr};
use selvedge_testkit::local::await_event;
use selvedge_testkit::skip::{Need, skip};

use crate::common::{MessageEndpoint, Rx, Tx, pattern};
use crate::provider;

/// The environment variable of a member's process.
const MEMBER: &str = "SELVEDGE_LNX_TEST_MEMBER";
const TEST: &str = "hosts::pairs_inside_a_host_use_shm_and_others_the_library";
const LINKS: &str = "shm+tcp;ofi_rxm;ofi";
/// More than all headers and small messages of the test.
const LARGE: usize = 4 << 20;

/// The names of two network namespaces, which are deleted when this value is dropped.
struct Hosts([String; 2]);

fn ip(line: &str) -> bool {
    let output = Command::new("ip").args(line.split_whitespace()).output();
    output.is_ok_and(|output| output.status.success())
}

fn has_carrier(host: &str) -> bool {
    let output = Command::new("ip")
        .args(["-n", host, "link", "show", "cable"])
        .output();
    let text = output.unwrap().stdout;
    String::from_utf8_lossy(&text).contains("state UP")
}

impl Hosts {
    fn create() -> Option<Self> {
        let names = ["a", "b"].map(|name| format!("lnx-{}-{name}", std::process::id()));
        let hosts = Self(names);
        let [a, b] = &hosts.0;
        let lines = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("-n {a} link add cable type veth peer name cable netns {b}"),
            format!("-n {a} addr add 10.78.0.1/24 dev cable"),
            format!("-n {b} addr add 10.78.0.2/24 dev cable"),
            format!("-n {a} link set cable up"),
            format!("-n {b} link set cable up"),
            format!("-n {a} link set lo up"),
            format!("-n {b} link set lo up"),
        ];
        if !lines.iter().all(|line| ip(line)) {
            return None;
        }
        // Until the kernel has noticed the carrier, the library takes the loopback interface.
        for host in &hosts.0 {
            await_event("the carrier of the cable", || {
                has_carrier(host).then_some(())
            });
        }
        Some(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&format!("netns delete {name}"));
        }
    }
}

/// A process of a host, which writes one line to each line that it gets.
struct Member {
    process: Child,
    requests: ChildStdin,
    responses: Lines<BufReader<ChildStdout>>,
}

impl Member {
    fn start(host: &str) -> Self {
        let mut process = Command::new("ip")
            .args(["netns", "exec", host])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(MEMBER, host)
            // The library reads its parameters from the environment.
            .env("FI_TCP_IFACE", "cable")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            requests: process.stdin.take().unwrap(),
            responses: BufReader::new(process.stdout.take().unwrap()).lines(),
            process,
        }
    }

    fn request(&mut self, line: &str) {
        writeln!(self.requests, "{line}").unwrap();
    }

    /// The member's next response.
    fn response(&mut self) -> String {
        let mut lines = self.responses.by_ref().map_while(Result::ok);
        lines
            .find_map(|line| Some(line.split_once("response ")?.1.to_owned()))
            .expect("the member has ended without a response")
    }

    fn request_response(&mut self, line: &str) -> String {
        self.request(line);
        self.response()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes that have left this process's host.
fn bytes_on_cable() -> u64 {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap();
    let cable = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("cable:"));
    let mut fields = cable.unwrap().split_whitespace();
    fields.nth(8).unwrap().parse().unwrap()
}

/// Carries out the requests of the test, in a member's process.
fn run_member() {
    let params = [
        ("FI_LNX_PROV_LINKS", LINKS),
        ("FI_LNX_PEER_TIMEOUT", "500ms"),
    ];
    let side = provider::with_params(&params, &provider::hints()).endpoint();
    let (sender, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    loop {
        match requests.recv_timeout(Duration::from_millis(1)) {
            Ok(line) => println!("response {}", carry_out(&side, &line)),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => side.progress(),
            Err(_) => return,
        }
    }
}

fn carry_out(side: &MessageEndpoint, line: &str) -> String {
    let mut words = line.split_whitespace();
    let (verb, mut numbers) = (words.next().unwrap(), words.clone());
    let mut number = || numbers.next().unwrap().parse::<u64>().unwrap();
    match verb {
        "address" => side.ep.address().unwrap().to_string(),
        "insert" => {
            let addr: Address = words.next().unwrap().parse().unwrap();
            side.av.insert_one(&addr).unwrap().0.to_string()
        }
        "send" => {
            let (peer, tag, len) = (FiAddr(number()), number(), number() as usize);
            side.send_retrying(&Tx::tagged(peer, tag, &pattern(tag, len)), &[]);
            side.wait(&[]).outcome.unwrap();
            "sent".to_owned()
        }
        "receive" => {
            let (peer, tag, len) = (FiAddr(number()), number(), number() as usize);
            side.recv(&Rx::tagged(tag, len).from(peer));
            let done = side.wait(&[]);
            match &done.outcome {
                Ok(_) => {
                    done.assert_bytes(&pattern(tag, len));
                    "received".to_owned()
                }
                Err(error) => format!("{:?}", error.errno),
            }
        }
        "cable" => bytes_on_cable().to_string(),
        _ => panic!("{line}"),
    }
}

/// Sends messages of several sizes from one member to another. Returns the bytes on the cable.
fn exchange(members: &mut [Member], from: usize, to: usize) -> u64 {
    let before: u64 = members[from].request_response("cable").parse().unwrap();
    for (tag, len) in (1..).zip([8, 4096, 100_000, LARGE]) {
        members[to].request(&format!("receive {from} {tag} {len}"));
        assert_eq!(
            members[from].request_response(&format!("send {to} {tag} {len}")),
            "sent"
        );
        assert_eq!(members[to].response(), "received");
    }
    members[from]
        .request_response("cable")
        .parse::<u64>()
        .unwrap()
        - before
}

#[test]
fn pairs_inside_a_host_use_shm_and_others_the_library() {
    if std::env::var(MEMBER).is_ok() {
        return run_member();
    }
    if !provider::has_library() {
        return skip(
            Need::Libfabric,
            "the system has no libfabric with tcp;ofi_rxm",
        );
    }
    let Some(hosts) = Hosts::create() else {
        return skip(
            Need::Rights,
            "network namespaces cannot be created, or there is no ip(8)",
        );
    };
    let [a, b] = &hosts.0;
    let mut members = [a, a, b, b].map(|host| Member::start(host));
    let names: Vec<_> = members
        .iter_mut()
        .map(|it| it.request_response("address"))
        .collect();
    for member in &mut members {
        for (index, name) in names.iter().enumerate() {
            assert_eq!(
                member.request_response(&format!("insert {name}")),
                index.to_string()
            );
        }
    }
    for (from, to, is_inside) in [
        (0, 1, true),
        (2, 3, true),
        (0, 2, false),
        (2, 0, false),
        (3, 1, false),
    ] {
        let bytes = exchange(&mut members, from, to);
        assert_eq!(
            bytes < LARGE as u64,
            is_inside,
            "{from} to {to}: {bytes} bytes"
        );
    }
    // The receiver notices that a process of the other host was killed; others go on.
    members[1].request("receive 3 9 8");
    members[3].process.kill().unwrap();
    let errno = members[1].response();
    assert_eq!(errno, format!("{:?}", Errno::ConnReset));
    exchange(&mut members, 1, 2);
    exchange(&mut members, 1, 0);
}
