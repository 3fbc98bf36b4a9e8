//! Two hosts, emulated by network namespaces with a virtual cable. Without the right to create
//! namespaces, or without `ip` (on Debian: iproute2), the tests print the reason and are skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "not every helper is for every test")]
#[path = "../one_process/endpoint.rs"]
mod endpoint;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::local::until;

use endpoint::{CopyingEndpoint, info_at, pattern};
use selvedge_testkit::skip::{Need, skip};

/// Parameters of every endpoint, beside those of its test.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}

/// The environment variable of a guest process that has the guest's address.
const GUEST: &str = "SELVEDGE_TCP_TEST_GUEST";
const LARGE: usize = 8 << 20;

/// The other host, at the other end of the cable.
struct Host {
    name: String,
    local_ip: String,
    guest: String,
}

/// Runs `ip` with these arguments. Returns whether the command succeeded.
fn run_ip(line: &str) -> bool {
    let output = Command::new("ip").args(line.split_whitespace()).output();
    output.is_ok_and(|output| output.status.success())
}

impl Host {
    fn create() -> Option<Self> {
        static HOSTS: AtomicUsize = AtomicUsize::new(0);
        let number = HOSTS.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id() as usize;
        let name = format!("sv{pid}n{number}");
        let net = format!("10.{}.{}", 64 + (pid >> 6) % 64, (pid * 4 + number) % 256);
        let (local_ip, guest) = (format!("{net}.1"), format!("{net}.2"));
        if !run_ip(&format!("netns add {name}")) {
            skip(
                Need::Rights,
                "there is no right to create network namespaces, or no ip(8)",
            );
            return None;
        }
        let host = Self {
            name,
            local_ip,
            guest,
        };
        let Self {
            name,
            local_ip,
            guest,
        } = &host;
        for line in [
            format!("link add {name}h type veth peer name {name}g netns {name}"),
            format!("addr add {local_ip}/24 dev {name}h"),
            format!("link set {name}h up"),
            format!("-n {name} addr add {guest}/24 dev {name}g"),
            format!("-n {name} link set {name}g up"),
        ] {
            if !run_ip(&line) {
                skip(Need::Rights, format_args!("ip {line} is refused"));
                return None;
            }
        }
        Some(host)
    }

    /// Cuts the cable, which then drops all packets without any response.
    fn cut_cable(&self) {
        self.change_guest_addr("del");
    }

    fn restore_cable(&self) {
        self.change_guest_addr("add");
    }

    fn change_guest_addr(&self, verb: &str) {
        let Self { name, guest, .. } = self;
        assert!(run_ip(&format!(
            "-n {name} addr {verb} {guest}/24 dev {name}g"
        )));
    }

    /// Starts this test as a process on the other host, the guest.
    fn start_guest(&self, test: &str) -> Guest {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(GUEST, format!("{}:0", self.guest))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Guest { child, lines }
    }

    fn side(&self, params: &[(&str, &str)]) -> CopyingEndpoint {
        CopyingEndpoint::open(&info_at(
            &format!("{}:0", self.local_ip),
            EpType::Rdm,
            params,
        ))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        run_ip(&format!("netns del {}", self.name));
        run_ip(&format!("link del {}h", self.name));
    }
}

struct Guest {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Guest {
    /// Returns the rest of the guest's next line that contains a word, while `side` makes
    /// progress.
    fn wait_for_line(&self, side: &CopyingEndpoint, word: &str) -> String {
        until(|| {
            side.progress();
            let line = self.lines.try_recv().ok()?;
            let start = line.find(word)?;
            Some(line[start + word.len()..].to_owned())
        })
    }

    fn insert_guest(&self, side: &CopyingEndpoint) -> FiAddr {
        side.insert(self.wait_for_line(side, "guest at ").parse().unwrap())
    }
}

/// Receives messages for ever and prints whether each is intact, if this process is a guest.
/// Returns false in any other process.
fn run_guest() -> bool {
    let Ok(addr) = std::env::var(GUEST) else {
        return false;
    };
    let side = CopyingEndpoint::open(&info_at(&addr, EpType::Rdm, &[]));
    println!("guest at {}", side.addr());
    for number in 0.. {
        let buffer = side.trecv(FiAddr::UNSPEC, number, LARGE, number);
        let completion = until(|| side.poll());
        let entry = completion.unwrap();
        let is_intact = buffer.bytes()[..entry.len] == pattern(number as usize, entry.len);
        println!("guest has {number} {} {is_intact}", entry.len);
    }
    true
}

/// Short timeouts, which detect an unresponsive host within seconds.
const SHORT_TIMEOUTS: &[(&str, &str)] = &[
    ("FI_TCP_USER_TIMEOUT", "1s"),
    ("FI_TCP_KEEPALIVE_IDLE", "1s"),
    ("FI_TCP_KEEPALIVE_INTERVAL", "1s"),
    ("FI_TCP_KEEPALIVE_COUNT", "2"),
];

#[test]
fn a_cable_that_is_cut_for_a_while_loses_nothing() {
    if run_guest() {
        return;
    }
    let Some(host) = Host::create() else { return };
    let guest = host.start_guest("a_cable_that_is_cut_for_a_while_loses_nothing");
    let side = host.side(&[]);
    let guest_addr = guest.insert_guest(&side);
    side.tsend(guest_addr, 0, &pattern(0, LARGE), 0).unwrap();
    assert_eq!(
        guest.wait_for_line(&side, "guest has 0 "),
        format!("{LARGE} true")
    );
    side.wait_for(0, &[]);
    host.cut_cable();
    side.tsend(guest_addr, 1, &pattern(1, LARGE), 1).unwrap();
    for _ in 0..100 {
        side.progress();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    host.restore_cable();
    assert_eq!(
        guest.wait_for_line(&side, "guest has 1 "),
        format!("{LARGE} true")
    );
    side.wait_for(1, &[]);
}

#[test]
fn a_silent_host_is_an_error_with_and_without_messages_in_flight() {
    if run_guest() {
        return;
    }
    let Some(host) = Host::create() else { return };
    let guest = host.start_guest("a_silent_host_is_an_error_with_and_without_messages_in_flight");
    let (busy, idle) = (host.side(SHORT_TIMEOUTS), host.side(SHORT_TIMEOUTS));
    let guest_addr = guest.insert_guest(&busy);
    let (addr, number) = (busy.av.lookup(guest_addr).unwrap(), 0);
    busy.tsend(guest_addr, number, &pattern(0, 8), 0).unwrap();
    guest.wait_for_line(&busy, "guest has 0 ");
    busy.wait_for(0, &[]);
    let guest_addr = idle.av.insert_one(&addr).unwrap();
    idle.tsend(guest_addr, 1, &pattern(1, 8), 0).unwrap();
    guest.wait_for_line(&idle, "guest has 1 ");
    idle.wait_for(0, &[]);
    idle.trecv(guest_addr, 5, 8, 5);
    host.cut_cable();
    busy.tsend(guest_addr, 2, &pattern(2, 64 << 20), 2).unwrap();
    for (side, context) in [(&busy, 2), (&idle, 5)] {
        let error = side.wait(&[]).unwrap_err();
        assert_eq!(error.entry.context.0, context);
        let expected = [Errno::TimedOut, Errno::HostUnreach, Errno::NetUnreach];
        assert!(expected.contains(&error.errno), "{error:?}");
        assert!(error.detail.contains(&host.guest), "{}", error.detail);
    }
}

#[test]
fn a_peer_that_ended_behind_a_cut_cable_is_an_error_when_the_cable_is_mended() {
    if run_guest() {
        return;
    }
    let Some(host) = Host::create() else { return };
    let name = "a_peer_that_ended_behind_a_cut_cable_is_an_error_when_the_cable_is_mended";
    let mut guest = host.start_guest(name);
    let side = host.side(&[]);
    let guest_addr = guest.insert_guest(&side);
    side.tsend(guest_addr, 0, &pattern(0, 8), 0).unwrap();
    guest.wait_for_line(&side, "guest has 0 ");
    side.wait_for(0, &[]);
    host.cut_cable();
    guest.child.kill().unwrap();
    guest.child.wait().unwrap();
    side.trecv(guest_addr, 5, 8, 5);
    side.tsend(guest_addr, 1, &pattern(1, 64 << 20), 1).unwrap();
    side.progress();
    host.restore_cable();
    for _ in 0..2 {
        let error = side.wait(&[]).unwrap_err();
        assert_eq!(error.errno, Errno::ConnReset, "{}", error.detail);
    }
    // A new incarnation at another port of the same host.
    let next = host.start_guest(name);
    let guest_addr = next.insert_guest(&side);
    side.tsend(guest_addr, 0, &pattern(0, 8), 9).unwrap();
    next.wait_for_line(&side, "guest has 0 ");
    side.wait_for(9, &[]);
}
