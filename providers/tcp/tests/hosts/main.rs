//! Two hosts, emulated by network namespaces with a virtual cable. Without the right to create
//! namespaces, or without `ip` (on Debian: iproute2), the tests print that and are skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "not every helper is for every test")]
#[path = "../one_process/side.rs"]
mod side;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use selvedge::info::EpType;
use selvedge::{Errno, FiAddr};

use selvedge_testkit::skip::{Need, skip};
use side::{Side, info_at, pattern, until};

/// Parameters of every endpoint, beside those of its test.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}

/// Set in the process on the other host: its address.
const GUEST: &str = "SELVEDGE_TCP_TEST_GUEST";
const LARGE: usize = 8 << 20;

/// The other host, at the other end of the cable.
struct Host {
    name: String,
    local_ip: String,
    guest: String,
}

fn ip(line: &str) -> bool {
    let output = Command::new("ip").args(line.split_whitespace()).output();
    output.is_ok_and(|output| output.status.success())
}

impl Host {
    fn make() -> Option<Self> {
        static HOSTS: AtomicUsize = AtomicUsize::new(0);
        let number = HOSTS.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id() as usize;
        let name = format!("sv{pid}n{number}");
        let net = format!("10.{}.{}", 64 + (pid >> 6) % 64, (pid * 4 + number) % 256);
        let (local_ip, guest) = (format!("{net}.1"), format!("{net}.2"));
        if !ip(&format!("netns add {name}")) {
            skip(
                Need::Rights,
                "there is no right to make network namespaces, or no ip(8)",
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
            if !ip(&line) {
                skip(Need::Rights, format_args!("ip {line} is refused"));
                return None;
            }
        }
        Some(host)
    }

    /// Cuts or restores the cable. A cut cable drops all packets without any response.
    fn cut(&self, is_cut: bool) {
        let verb = if is_cut { "del" } else { "add" };
        let Self { name, guest, .. } = self;
        assert!(ip(&format!("-n {name} addr {verb} {guest}/24 dev {name}g")));
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

    fn side(&self, params: &[(&str, &str)]) -> Side {
        Side::open(&info_at(
            &format!("{}:0", self.local_ip),
            EpType::Rdm,
            params,
        ))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&format!("netns del {}", self.name));
        ip(&format!("link del {}h", self.name));
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
    fn wait_for_line(&self, side: &Side, word: &str) -> String {
        until(|| {
            side.drive();
            let line = self.lines.try_recv().ok()?;
            let start = line.find(word)?;
            Some(line[start + word.len()..].to_owned())
        })
    }

    fn insert_guest(&self, side: &Side) -> FiAddr {
        side.insert(self.wait_for_line(side, "guest at ").parse().unwrap())
    }
}

/// The guest: it receives messages, and prints whether each is intact.
fn be_guest() -> bool {
    let Ok(at) = std::env::var(GUEST) else {
        return false;
    };
    let side = Side::open(&info_at(&at, EpType::Rdm, &[]));
    println!("guest at {}", side.addr());
    for number in 0.. {
        let buffer = side.trecv(FiAddr::UNSPEC, number, LARGE, number);
        let done = until(|| side.poll());
        let entry = done.unwrap();
        let is_whole = buffer.bytes()[..entry.len] == pattern(number as usize, entry.len);
        println!("guest has {number} {} {is_whole}", entry.len);
    }
    true
}

/// Short timeouts detect silence soon.
const SHORT_TIMEOUTS: &[(&str, &str)] = &[
    ("FI_TCP_USER_TIMEOUT", "1s"),
    ("FI_TCP_KEEPALIVE_IDLE", "1s"),
    ("FI_TCP_KEEPALIVE_INTERVAL", "1s"),
    ("FI_TCP_KEEPALIVE_COUNT", "2"),
];

#[test]
fn a_cable_that_is_cut_for_a_while_loses_nothing() {
    if be_guest() {
        return;
    }
    let Some(host) = Host::make() else { return };
    let guest = host.start_guest("a_cable_that_is_cut_for_a_while_loses_nothing");
    let side = host.side(&[]);
    let to = guest.insert_guest(&side);
    side.tsend(to, 0, &pattern(0, LARGE), 0).unwrap();
    assert_eq!(
        guest.wait_for_line(&side, "guest has 0 "),
        format!("{LARGE} true")
    );
    side.wait_for(0, &[]);
    host.cut(true);
    side.tsend(to, 1, &pattern(1, LARGE), 1).unwrap();
    for _ in 0..100 {
        side.drive();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    host.cut(false);
    assert_eq!(
        guest.wait_for_line(&side, "guest has 1 "),
        format!("{LARGE} true")
    );
    side.wait_for(1, &[]);
}

#[test]
fn a_silent_host_is_an_error_with_and_without_messages_in_flight() {
    if be_guest() {
        return;
    }
    let Some(host) = Host::make() else { return };
    let guest = host.start_guest("a_silent_host_is_an_error_with_and_without_messages_in_flight");
    let (busy, idle) = (host.side(SHORT_TIMEOUTS), host.side(SHORT_TIMEOUTS));
    let to = guest.insert_guest(&busy);
    let (addr, number) = (busy.av.lookup(to).unwrap(), 0);
    busy.tsend(to, number, &pattern(0, 8), 0).unwrap();
    guest.wait_for_line(&busy, "guest has 0 ");
    busy.wait_for(0, &[]);
    let of_idle = idle.av.insert_one(&addr).unwrap();
    idle.tsend(of_idle, 1, &pattern(1, 8), 0).unwrap();
    guest.wait_for_line(&idle, "guest has 1 ");
    idle.wait_for(0, &[]);
    idle.trecv(of_idle, 5, 8, 5);
    host.cut(true);
    busy.tsend(to, 2, &pattern(2, 64 << 20), 2).unwrap();
    for (side, context) in [(&busy, 2), (&idle, 5)] {
        let error = side.wait(&[]).unwrap_err();
        assert_eq!(error.entry.context.0, context);
        let silent = [Errno::TimedOut, Errno::HostUnreach, Errno::NetUnreach];
        assert!(silent.contains(&error.errno), "{error:?}");
        assert!(error.detail.contains(&host.guest), "{}", error.detail);
    }
}

#[test]
fn a_peer_that_ended_behind_a_cut_cable_is_an_error_when_the_cable_is_mended() {
    if be_guest() {
        return;
    }
    let Some(host) = Host::make() else { return };
    let name = "a_peer_that_ended_behind_a_cut_cable_is_an_error_when_the_cable_is_mended";
    let mut guest = host.start_guest(name);
    let side = host.side(&[]);
    let to = guest.insert_guest(&side);
    side.tsend(to, 0, &pattern(0, 8), 0).unwrap();
    guest.wait_for_line(&side, "guest has 0 ");
    side.wait_for(0, &[]);
    host.cut(true);
    guest.child.kill().unwrap();
    guest.child.wait().unwrap();
    side.trecv(to, 5, 8, 5);
    side.tsend(to, 1, &pattern(1, 64 << 20), 1).unwrap();
    side.drive();
    host.cut(false);
    for _ in 0..2 {
        let error = side.wait(&[]).unwrap_err();
        assert_eq!(error.errno, Errno::ConnReset, "{}", error.detail);
    }
    // A new incarnation at another port of the same host.
    let next = host.start_guest(name);
    let to = next.insert_guest(&side);
    side.tsend(to, 0, &pattern(0, 8), 9).unwrap();
    next.wait_for_line(&side, "guest has 0 ");
    side.wait_for(9, &[]);
}
