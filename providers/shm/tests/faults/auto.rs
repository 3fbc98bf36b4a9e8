//! Automatic progress: a thread where it was requested, and none elsewhere.

#![expect(
    unsafe_code,
    reason = "reads a buffer while a message is received into it"
)]

use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use selvedge::info::{EpType, Progress};
use selvedge::{Caps, Hints, Info, MrAccess, Registry, wait};

use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::process::{Watchdog, alone};
use crate::special::connected_peer;

fn info(progress: Progress) -> Info {
    let registry = Registry::new().with(&selvedge_shm::PROVIDER);
    let hints = Hints::new()
        .caps(Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV)
        .ep_type(EpType::Rdm)
        .edit(|info| info.domain_attr.data_progress = progress);
    registry.infos(&hints).unwrap().remove(0)
}

fn side(progress: Progress) -> NumberedEndpoint {
    NumberedEndpoint::open_waiting(None, &info(progress), wait::Object::Unspec).unwrap()
}

/// Returns the number of threads of automatic progress in this process.
fn count_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names
        .filter(|name| {
            name.as_ref()
                .is_ok_and(|name| name.trim() == "selvedge-shm")
        })
        .count()
}

/// Waits until the process has `count` threads of automatic progress. A thread sets its own name,
/// and is listed for a moment after it was joined.
fn wait_for_threads(count: usize) {
    while count_threads() != count {
        std::thread::yield_now();
    }
}

#[test]
fn a_requested_progress_thread_runs_until_its_domain_ends() {
    alone(|| {
        assert_eq!(
            info(Progress::Unspec).domain_attr.data_progress,
            Progress::Manual
        );
        let manual = side(Progress::Manual);
        assert_eq!(count_threads(), 0);
        let automatic = side(Progress::Auto);
        wait_for_threads(1);
        let (ep, cq, av, domain) = automatic.into_handles();
        drop((cq, av, domain));
        assert_eq!(count_threads(), 1);
        drop(ep);
        wait_for_threads(0);
        drop(manual);
    });
}

#[test]
fn messages_complete_without_any_call_of_the_application() {
    alone(|| {
        let (mut a, mut b) = (side(Progress::Auto), side(Progress::Auto));
        let (to_b, _) = (a.insert(b.name()), b.insert(a.name()));
        for (number, len) in [(1, 8), (2, 3000), (3, 3_000_000), (4, 40)] {
            let buffer = b.recv_at(Kind::Tagged, len, number);
            a.send(Kind::Tagged, to_b, len, number).unwrap();
            let expected = content(number, len);
            // SAFETY: the buffer is kept by `b` until its completion is read; its bytes are read
            // one by one, by volatile loads.
            let byte = |index: usize| unsafe { buffer.wrapping_add(index).read_volatile() };
            while !(0..len).all(|index| byte(index) == expected[index]) {
                std::thread::yield_now();
            }
        }
        // The entries can be read without progress.
        for number in 1..=4 {
            assert_eq!(b.park(None).unwrap().ok().context, number);
            assert_eq!(a.park(None).unwrap().ok().context, number);
        }
    });
}

/// The application's thread finds the peer's socket full, and makes no progress afterwards.
#[test]
fn announcements_to_a_peer_with_a_full_socket_are_sent_later_without_any_call() {
    const BLOCKS: usize = 600;
    alone(|| {
        let mut side = side(Progress::Auto);
        let (mut peer_process, ..) = connected_peer(&mut side);
        for block in 0..BLOCKS as u64 {
            side.alloc(block, 8192, MrAccess::empty()).unwrap();
        }
        peer_process.request("drive on");
        let maps = format!("/proc/{}/maps", peer_process.pid());
        let mapped = || {
            let maps = std::fs::read_to_string(&maps).unwrap();
            maps.matches("memfd:selvedge-special").count()
        };
        while mapped() < BLOCKS {
            std::thread::yield_now();
        }
    });
}

#[test]
fn the_progress_thread_parks_while_nothing_moves() {
    alone(|| {
        let (mut a, mut b) = (side(Progress::Auto), side(Progress::Auto));
        let (to_b, _) = (a.insert(b.name()), b.insert(a.name()));
        b.recv(Kind::Tagged, selvedge::FiAddr::UNSPEC, 8, 1)
            .unwrap();
        a.send(Kind::Tagged, to_b, 8, 1).unwrap();
        b.park(None).unwrap().ok();
        std::thread::sleep(Duration::from_millis(50));
        let before = getrusage(UsageWho::RUSAGE_SELF).unwrap();
        assert!(b.park(Some(Duration::from_millis(500))).is_none());
        let after = getrusage(UsageWho::RUSAGE_SELF).unwrap();
        let switches = after.voluntary_context_switches() - before.voluntary_context_switches();
        assert!(switches < 100, "the threads woke {switches} times");
    });
}

#[test]
fn threads_wait_and_poll_beside_the_progress_thread() {
    let _watchdog = Watchdog::new();
    let (mut a, mut b) = (side(Progress::Auto), side(Progress::Auto));
    let (to_b, to_a) = (a.insert(b.name()), b.insert(a.name()));
    let echo = std::thread::spawn(move || {
        for number in 0..100 {
            b.recv(Kind::Tagged, to_a, 8, number).unwrap();
            while b.park(None).unwrap().ok().bytes.is_empty() {}
            b.send(Kind::Tagged, to_a, 8, number).unwrap();
        }
        b
    });
    for number in 0..100 {
        a.recv(Kind::Tagged, to_b, 8, number).unwrap();
        a.send(Kind::Tagged, to_b, 8, number).unwrap();
        while a.next().ok().bytes.is_empty() {}
    }
    drop(echo.join().unwrap());
    drop(Arc::clone(a.cq()));
}
