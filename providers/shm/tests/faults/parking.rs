//! Parked threads: every packet and message wakes them, and meanwhile they take no processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use selvedge::info::EpType;
use selvedge::rma::RmaIov;
use selvedge::{Errno, FiAddr, IovMut, MrAccess, mr, wait};

use crate::connect::unique;
use crate::endpoint::{ANY, Kind, NumberedEndpoint, content, info};
use crate::process::{PeerProcess, Watchdog};

/// Pauses of pseudorandom lengths, the same in each run: from none to longer than a thread polls
/// before it parks.
pub(crate) struct Pauses(fastrand::Rng);

impl Pauses {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn pause(&mut self) {
        let turns = match self.0.u8(..16) {
            0..6 => 0,
            6..15 => self.0.u32(..0x800),
            _ => self.0.u32(..0x8000),
        };
        for _ in 0..turns {
            std::hint::spin_loop();
        }
    }
}

/// Waits until a thread of the process is blocked in ppoll(2), in which threads park.
fn wait_until_parked(pid: i32) {
    let call = libc::SYS_ppoll.to_string();
    let is_parked = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        tasks.flatten().any(|task| {
            let state = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            state.split(' ').next() == Some(&call)
        })
    };
    while !is_parked() {
        std::thread::yield_now();
    }
}

/// Far longer than a wake-up takes.
const WAKE_UP_TIMEOUT: Duration = Duration::from_secs(10);

fn open_waiting_side(params: &[(&str, &str)]) -> NumberedEndpoint {
    NumberedEndpoint::open_waiting(None, &info(EpType::Rdm, params), wait::Object::Unspec).unwrap()
}

/// Opens a side and a peer process, each with a queue that a thread can wait at. Returns them with
/// their addresses.
fn connect(label: &str, protocol: &str) -> (NumberedEndpoint, PeerProcess, FiAddr, String) {
    let side = open_waiting_side(&[("FI_SHM_PROTOCOL", protocol)]);
    let (mut peer_process, name) = (PeerProcess::start(), unique(label));
    peer_process.request(&format!("open-waiting {name} FI_SHM_PROTOCOL={protocol}"));
    let peer_addr = side.insert(&name);
    let side_addr = peer_process.request(&format!("insert {}", side.name()));
    (side, peer_process, peer_addr, side_addr)
}

/// One message for each protocol.
const TRANSFERS: [(Kind, usize, &str); 8] = [
    (Kind::Msg, 8, "auto"),
    (Kind::Inject, 8, "auto"),
    (Kind::Tagged, 4000, "auto"),
    (Kind::TaggedInject, 2000, "auto"),
    (Kind::Delivered, 8, "auto"),
    (Kind::Delivered, 4000, "auto"),
    (Kind::Tagged, 3_000_000, "cma"),
    (Kind::Tagged, 3_000_000, "bounce"),
];

#[test]
fn a_parked_receiver_is_woken_by_a_message_of_every_protocol() {
    let _watchdog = Watchdog::new();
    for (kind, len, protocol) in TRANSFERS {
        let (mut side, mut peer_process, peer_addr, _) = connect("wake", protocol);
        for number in 0..20 {
            peer_process.request(&format!("recv {kind:?} {len} {number}"));
            peer_process.send_request("park");
            wait_until_parked(peer_process.pid());
            while side.send(kind, peer_addr, len, number) == Err(Errno::Again) {
                side.drive();
            }
            // A small message is sent when the call returns. The others need progress of the
            // sender, which parks until the receiver requests it.
            if kind == Kind::Delivered || len > 4096 {
                side.park(None).unwrap().ok();
            }
            assert_eq!(peer_process.response(), format!("done {number} {len} good"));
        }
    }
}

#[test]
fn a_parked_receiver_is_woken_by_a_new_connection_and_by_the_messages_after_it() {
    let _watchdog = Watchdog::new();
    for round in 0..20 {
        let (mut side, mut peer_process, peer_addr, _) = connect(&format!("first{round}"), "auto");
        for number in 0..3 {
            peer_process.request(&format!("recv Tagged 8 {number}"));
        }
        for number in 0..3 {
            peer_process.send_request("park");
            wait_until_parked(peer_process.pid());
            // This side makes no progress in between, so it does not read the peer's own hello.
            side.send(Kind::TaggedInject, peer_addr, 8, number).unwrap();
            assert_eq!(peer_process.response(), format!("done {number} 8 good"));
        }
    }
}

#[test]
#[expect(unsafe_code, reason = "registers memory that is never freed")]
fn packets_behind_hundreds_of_wake_ups_are_received() {
    const COUNT: u64 = 400;
    const LARGE: usize = 1 << 20;
    let _watchdog = Watchdog::new();
    let params = [("FI_SHM_PROTOCOL", "bounce"), ("FI_SHM_CMD_COUNT", "1024")];
    for parks in [false, true] {
        let (mut side, mut other) = (open_waiting_side(&params), open_waiting_side(&params));
        let (to_other, to_side) = (side.insert(other.name()), other.insert(side.name()));
        for number in 0..COUNT {
            other.recv(Kind::Tagged, to_side, 8, number).unwrap();
            // No side makes progress in between, so each message wakes the other side.
            side.send(Kind::TaggedInject, to_other, 8, number).unwrap();
        }
        other.recv(Kind::Tagged, to_side, LARGE, COUNT).unwrap();
        // One packet announces a key, one a block, and one the bounce segments.
        let memory = vec![7_u8; LARGE].leak();
        let mut attr = mr::Attr::default();
        (attr.access, attr.requested_key) = (MrAccess::REMOTE_READ, 5);
        let segment = IovMut::from_raw(memory.as_mut_ptr().cast(), LARGE);
        // SAFETY: never freed, and not touched again.
        let _region = unsafe { side.domain().reg(&[segment], &attr) }.unwrap();
        side.alloc(6, LARGE, MrAccess::REMOTE_READ).unwrap();
        side.send(Kind::Tagged, to_other, LARGE, COUNT).unwrap();
        let receiver = std::thread::spawn(move || {
            let next = |other: &mut NumberedEndpoint| {
                if parks {
                    other.park(None).unwrap().ok()
                } else {
                    other.next().ok()
                }
            };
            for _ in 0..=COUNT {
                let event = next(&mut other);
                assert_eq!(event.bytes, content(event.context, event.bytes.len()));
            }
            for key in [5, 6] {
                let segment = RmaIov {
                    addr: 0,
                    len: LARGE,
                    key,
                };
                let post =
                    |other: &mut NumberedEndpoint| other.read_from(to_side, &[segment], LARGE, key);
                while let Err(errno) = post(&mut other) {
                    assert_eq!(errno, Errno::Again);
                    other.drive();
                }
                let event = next(&mut other);
                assert_eq!((event.context, event.bytes.len()), (key, LARGE));
            }
        });
        side.until(|_| receiver.is_finished());
        receiver.join().unwrap();
        assert_eq!(side.next().ok().context, COUNT);
    }
}

#[test]
fn a_parked_thread_is_woken_by_polled_and_unpolled_peers() {
    let _watchdog = Watchdog::new();
    let mut side = open_waiting_side(&[("FI_SHM_HOT_PEERS", "1")]);
    let pid = nix::unistd::getpid().as_raw();
    let mut peers = ["first", "second"].map(|label| {
        let mut peer_process = PeerProcess::start();
        peer_process.request(&format!("open {}", unique(label)));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        (peer_process, side_addr)
    });
    for number in 0..6 {
        let (peer_process, side_addr) = &mut peers[number as usize % 2];
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, number).unwrap();
        let waiter = std::thread::spawn(move || {
            let start = Instant::now();
            let event = side.park(Some(WAKE_UP_TIMEOUT));
            (side, event, start.elapsed() < WAKE_UP_TIMEOUT)
        });
        wait_until_parked(pid);
        peer_process.request(&format!("send TaggedInject {side_addr} 8 {number}"));
        let (woken, event, is_woken) = waiter.join().unwrap();
        // A wait polls also at its timeout.
        assert!(is_woken, "message {number} woke no thread");
        assert_eq!(event.unwrap().ok().context, number);
        side = woken;
        // The peer reads whether the side polls the peer's queue, or waits for the doorbell.
        peer_process.request("drive 1000");
    }
}

#[test]
fn a_parked_thread_is_woken_when_a_peer_is_killed_closes_or_exits() {
    let _watchdog = Watchdog::new();
    for end in ["kill", "close", "exit"] {
        let (mut side, mut peer_process, peer_addr, side_addr) = connect("end", "auto");
        side.recv(Kind::Tagged, peer_addr, 8, 1).unwrap();
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 2).unwrap();
        peer_process.request(&format!("send TaggedInject {side_addr} 8 2"));
        assert_eq!(side.park(None).unwrap().ok().context, 2);
        let pid = nix::unistd::getpid().as_raw();
        let waiter = std::thread::spawn(move || side.park(None).unwrap());
        wait_until_parked(pid);
        match end {
            "kill" => peer_process.kill(),
            "close" => drop(peer_process.request("close")),
            _ => peer_process.send_request("exit"),
        }
        assert_eq!(waiter.join().unwrap().errno(), Errno::ConnReset, "{end}");
    }
}

#[test]
fn a_parked_sender_reports_the_timeout_of_an_absent_peer() {
    let _watchdog = Watchdog::new();
    let mut side = open_waiting_side(&[("FI_SHM_PEER_TIMEOUT", "50ms")]);
    let absent = side.insert(unique("absent"));
    side.send(Kind::Tagged, absent, 8, 1).unwrap();
    assert_eq!(side.park(None).unwrap().errno(), Errno::ConnRefused);
}

#[test]
fn a_parked_thread_takes_almost_no_processor_time() {
    const PARK_TIME: Duration = Duration::from_millis(500);
    let _watchdog = Watchdog::new();
    let (mut side, mut peer_process, peer_addr, side_addr) = connect("idle", "auto");
    side.recv(Kind::Tagged, peer_addr, 8, 1).unwrap();
    peer_process.request(&format!("send Tagged {side_addr} 8 1"));
    side.park(None).unwrap().ok();
    side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, ANY).unwrap();
    let before = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    assert!(side.park(Some(PARK_TIME)).is_none());
    let after = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let switches = after.voluntary_context_switches() - before.voluntary_context_switches();
    assert!(switches < 50, "the thread woke {switches} times");
    let used = |usage: &nix::sys::resource::Usage| {
        let (user, system) = (usage.user_time(), usage.system_time());
        (user.tv_sec() + system.tv_sec()) * 1_000_000 + user.tv_usec() + system.tv_usec()
    };
    let used = used(&after) - used(&before);
    assert!(used < 50_000, "{used} us of processor time");
}

#[test]
fn no_wake_up_is_lost_however_the_two_sides_race() {
    const COUNT: u64 = 10_000;
    let _watchdog = Watchdog::new();
    for (len, count) in [(8, COUNT), (3000, COUNT / 3), (20_000, COUNT / 10)] {
        let (mut side, mut peer_process, peer_addr, side_addr) = connect("hammer", "auto");
        peer_process.request(&format!("echo {side_addr} {len} {count}"));
        let mut pauses = Pauses::new(len);
        for number in 0..count {
            side.recv(Kind::Tagged, peer_addr, len as usize, number)
                .unwrap();
            pauses.pause();
            side.send(Kind::Tagged, peer_addr, len as usize, number)
                .unwrap();
            pauses.pause();
            while side.park(None).unwrap().ok().bytes.is_empty() {}
        }
    }
}

/// A thread that polls occasionally leaves the endpoint armed. A thread that polls continuously
/// disarms the endpoint and wakes the parked threads. In both cases the thread at the descriptor
/// must be woken.
#[test]
fn no_wake_up_is_lost_on_a_descriptor_while_another_thread_polls_occasionally() {
    const COUNT: u64 = 800;
    let _watchdog = Watchdog::new();
    let info = info(EpType::Rdm, &[]);
    let mut side = NumberedEndpoint::open_waiting(None, &info, wait::Object::Fd).unwrap();
    let (mut peer_process, name) = (PeerProcess::start(), unique("onlooker"));
    peer_process.request(&format!("open-waiting {name}"));
    let peer_addr = side.insert(&name);
    let side_addr = peer_process.request(&format!("insert {}", side.name()));
    peer_process.request(&format!("echo {side_addr} 8 {COUNT}"));
    let (cq, round) = (Arc::clone(side.cq()), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Some polls for each message, and then none until the next one.
        scope.spawn(move || {
            let mut pauses = Pauses::new(11);
            for number in 1..COUNT {
                while round.load(Ordering::Relaxed) < number {
                    std::thread::yield_now();
                }
                pauses.pause();
                for _ in 0..number % 40 {
                    cq.read(&mut []).unwrap();
                }
            }
        });
        let mut pauses = Pauses::new(7);
        for number in 0..COUNT {
            side.recv(Kind::Tagged, peer_addr, 8, number).unwrap();
            round.store(number, Ordering::Relaxed);
            pauses.pause();
            side.send(Kind::Tagged, peer_addr, 8, number).unwrap();
            while side.park_on_descriptor().ok().bytes.is_empty() {}
        }
    });
}

#[test]
fn a_stopped_parked_process_is_woken_when_it_continues() {
    let _watchdog = Watchdog::new();
    let (mut side, mut peer_process, peer_addr, _) = connect("stop", "auto");
    peer_process.request("recv Tagged 8 1");
    peer_process.send_request("park");
    wait_until_parked(peer_process.pid());
    peer_process.signal(Signal::SIGSTOP);
    side.send(Kind::TaggedInject, peer_addr, 8, 1).unwrap();
    peer_process.signal(Signal::SIGCONT);
    assert_eq!(peer_process.response(), "done 1 8 good");
}
