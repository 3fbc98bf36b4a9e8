//! Connecting: malformed addresses, peers that are absent or late, names that are taken, and peers
//! that connect at the same instant.

#![expect(unsafe_code, reason = "a system call without a wrapper")]

use std::os::fd::AsRawFd;

use nix::sys::socket::{Backlog, bind, connect, listen};
use selvedge::info::EpType;
use selvedge::{Address, Errno, FiAddr, Hints, Registry};
use selvedge_testkit::long::part;
use selvedge_testkit::shm_peer::{packet_socket, socket_address};
use selvedge_testkit::skip::{Need, skip};

use crate::endpoint::{Kind, NumberedEndpoint, content, info};
use crate::process::{PeerProcess, Watchdog, alone};

/// A name that no other test process has.
pub(crate) fn unique(label: &str) -> String {
    format!("{}-{label}", std::process::id())
}

#[test]
fn an_unknown_address_is_refused_at_once() {
    let mut side = NumberedEndpoint::new();
    for addr in [FiAddr(0), FiAddr(77), FiAddr::NOTAVAIL, FiAddr::UNSPEC] {
        for kind in Kind::ALL {
            assert_eq!(side.send(kind, addr, 8, 1), Err(Errno::Inval), "{addr:?}");
        }
    }
    let removed = side.insert(unique("removed"));
    side.av.remove(&[removed]).unwrap();
    assert_eq!(side.send(Kind::Tagged, removed, 8, 1), Err(Errno::Inval));
    assert_eq!(side.recv(Kind::Tagged, removed, 8, 1), Err(Errno::Inval));
}

#[test]
fn the_error_for_a_malformed_address_contains_it() {
    let side = NumberedEndpoint::new();
    for text in [
        "",
        "fi_shm://",
        "two words",
        "fi_tcp://host:1",
        "a\nb",
        &"x".repeat(89),
    ] {
        let mut out = [FiAddr(7)];
        let inserted = side.av.insert(&[Address::Str(text.into())], &mut out);
        assert_eq!((inserted, out[0]), (Ok(0), FiAddr::NOTAVAIL), "{text:?}");
        let error = NumberedEndpoint::open(Some(text), &info(EpType::Rdm, &[]))
            .err()
            .unwrap();
        assert_eq!(error.errno(), Errno::Inval);
        let name = text.strip_prefix("fi_shm://").unwrap_or(text);
        assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
    }
}

#[test]
fn a_wrong_provider_name_is_refused_by_value() {
    let registry = Registry::new().with(&selvedge_shm::PROVIDER);
    let error = registry.infos(&Hints::new().provider("shmm")).unwrap_err();
    assert_eq!(error.errno(), Errno::NoData);
    assert!(error.to_string().contains("shmm"), "{error}");
}

#[test]
fn a_name_belongs_to_one_endpoint_at_a_time() {
    let _watchdog = Watchdog::new();
    let name = unique("once");
    let first = NumberedEndpoint::named(&name);
    let error = NumberedEndpoint::open(Some(&name), &info(EpType::Rdm, &[]))
        .err()
        .unwrap();
    assert_eq!(error.errno(), Errno::AddrInUse);
    assert!(error.to_string().contains(&name), "{error}");
    drop(first);
    drop(NumberedEndpoint::named(&name));
    let mut peer_process = PeerProcess::named(&name);
    assert!(NumberedEndpoint::open(Some(&name), &info(EpType::Rdm, &[])).is_err());
    peer_process.kill();
    NumberedEndpoint::named(&name);
}

#[test]
fn sends_to_an_absent_peer_fail() {
    let _watchdog = Watchdog::new();
    let name = unique("absent");
    // The long form tests the default timeout.
    let params = part(&[("FI_SHM_PEER_TIMEOUT", "100ms")][..], &[]);
    for kind in Kind::ALL {
        for len in [8, 1000, 1_000_000] {
            let mut side = NumberedEndpoint::with_params(None, params);
            let absent = side.insert(&name);
            match side.send(kind, absent, len, 1) {
                Err(Errno::MsgSize) if len > 4096 => continue,
                sent => sent.unwrap(),
            }
            let event = side.next();
            assert_eq!((event.errno(), event.src), (Errno::ConnRefused, absent));
            let detail = event.error.unwrap().detail;
            assert!(detail.contains(&name), "{detail}");
            assert_eq!(side.send(kind, absent, len, 2), Err(Errno::NotConn));
        }
    }
}

#[test]
fn the_longest_wait_for_a_peer_is_no_error() {
    let _watchdog = Watchdog::new();
    let params = [("FI_SHM_PEER_TIMEOUT", "18446744073709551615s")];
    let mut side = NumberedEndpoint::with_params(None, &params);
    let name = unique("very-late");
    let late = side.insert(&name);
    side.send(Kind::Tagged, late, 8, 1).unwrap();
    let mut late = NumberedEndpoint::named(&name);
    side.next_with(&mut [&mut late]).ok();
}

#[test]
fn a_peer_whose_backlog_is_full_is_tried_longer_than_an_absent_one() {
    let _watchdog = Watchdog::new();
    let name = unique("full-backlog");
    let listener = packet_socket().unwrap();
    bind(listener.as_raw_fd(), &socket_address(&name).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let sockets: Vec<_> = std::iter::repeat_with(|| packet_socket().unwrap())
        .take_while(|socket| connect(socket.as_raw_fd(), &socket_address(&name).unwrap()).is_ok())
        .collect();
    assert!(!sockets.is_empty());
    let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PEER_TIMEOUT", "0")]);
    let peer = side.insert(&name);
    side.send(Kind::Tagged, peer, 8, 1).unwrap();
    for _ in 0..1000 {
        side.drive();
        assert!(
            side.poll().is_none(),
            "the send failed while its peer existed"
        );
    }
    drop(listener);
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}

#[test]
fn receives_from_an_absent_peer_fail_after_the_first_connection_attempt() {
    let _watchdog = Watchdog::new();
    let mut side = NumberedEndpoint::new();
    let absent = side.insert(unique("absent-too"));
    side.recv(Kind::Tagged, absent, 8, 1).unwrap();
    side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 2).unwrap();
    side.send(Kind::Tagged, absent, 8, 3).unwrap();
    let mut failed = [side.next(), side.next()].map(|event| (event.context, event.errno()));
    failed.sort_unstable_by_key(|&(context, _)| context);
    assert_eq!(failed, [(1, Errno::ConnRefused), (3, Errno::ConnRefused)]);
    assert_eq!(side.recv(Kind::Tagged, absent, 8, 4), Err(Errno::NotConn));
    side.ep.cancel(selvedge::Context(2)).unwrap();
    assert_eq!(side.next().errno(), Errno::Canceled);
}

#[test]
fn a_peer_that_starts_late_receives_every_message_in_order() {
    let _watchdog = Watchdog::new();
    let name = unique("late");
    let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PEER_TIMEOUT", "30s")]);
    let late = side.insert(&name);
    let lens = [8, 1000, 100_000, 8, 4096, 300_000, 16, 8];
    for (number, len) in (1..).zip(lens) {
        side.send(Kind::Msg, late, len, number).unwrap();
    }
    side.drive();
    assert!(
        side.poll().is_none(),
        "no process can have received the messages"
    );
    let mut peer_process = PeerProcess::named(&name);
    for number in 1..=lens.len() {
        peer_process.request(&format!("recv Msg 300000 {number}"));
    }
    peer_process.request("drive on");
    for _ in lens {
        side.next().ok();
    }
    peer_process.request("drive off");
    let mut responses: Vec<_> = lens.map(|_| peer_process.request("next")).into();
    responses.sort();
    let expected = (1..).zip(lens);
    let expected: Vec<_> = expected
        .map(|(n, len)| format!("done {n} {len} good"))
        .collect();
    assert_eq!(responses, expected);
    assert!(side.is_idle());
}

/// The first registration of a process with several threads waits for a grace period of the kernel
/// of 10 ms or more. No post may wait for that period.
#[test]
fn the_first_endpoint_registers_its_process_for_membarrier() {
    alone(|| {
        const GET_REGISTRATIONS: i32 = 1 << 9;
        const GLOBAL_EXPEDITED: i64 = 1 << 2;
        // SAFETY: a system call with integers; it accesses no memory.
        let registered = || unsafe { libc::syscall(libc::SYS_membarrier, GET_REGISTRATIONS, 0, 0) };
        if registered() < 0 {
            return skip(
                Need::System,
                "the system does not report registrations for membarrier(2); Linux 6.3 and later do",
            );
        }
        assert_eq!(registered() & GLOBAL_EXPEDITED, 0);
        let _side = NumberedEndpoint::new();
        assert_ne!(registered() & GLOBAL_EXPEDITED, 0);
    });
}

#[test]
fn both_sides_may_connect_at_the_same_instant() {
    let _watchdog = Watchdog::new();
    for round in 0..part(100, 1000) {
        let (mut a, mut b) = (NumberedEndpoint::new(), NumberedEndpoint::new());
        let (to_b, to_a) = (a.insert(b.name()), b.insert(a.name()));
        a.recv(Kind::Tagged, to_b, 8, 1).unwrap();
        b.recv(Kind::Tagged, to_a, 8, 2).unwrap();
        // Neither side has read a packet when the other one connects.
        a.send(Kind::Delivered, to_b, 8, 2).unwrap();
        b.send(Kind::Delivered, to_a, 8, 1).unwrap();
        if round % 2 == 0 {
            std::mem::swap(&mut a, &mut b);
        }
        for _ in 0..2 {
            a.next_with(&mut [&mut b]).ok();
            b.next_with(&mut [&mut a]).ok();
        }
    }
}

#[test]
fn two_processes_may_connect_at_the_same_instant() {
    let _watchdog = Watchdog::new();
    let mut peer_process = PeerProcess::start();
    for round in 0..200 {
        let mut side = NumberedEndpoint::new();
        peer_process.request(&format!("open {}", unique(&format!("instant{round}"))));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        let peer_addr = side.insert(unique(&format!("instant{round}")));
        side.recv(Kind::Tagged, peer_addr, 8, 1).unwrap();
        peer_process.request("recv Tagged 8 2");
        peer_process.send_request(&format!("send Delivered {side_addr} 8 1"));
        side.send(Kind::Delivered, peer_addr, 8, 2).unwrap();
        assert_eq!(peer_process.response(), "ok");
        peer_process.request("drive on");
        let mut contexts = [side.next().ok().context, side.next().ok().context];
        contexts.sort_unstable();
        assert_eq!(contexts, [1, 2]);
        peer_process.request("drive off");
        for _ in 0..2 {
            let response = peer_process.request("next");
            assert!(response.starts_with("done"), "{response}");
        }
    }
}

#[test]
fn an_endpoint_may_send_to_itself() {
    let _watchdog = Watchdog::new();
    let mut side = NumberedEndpoint::new();
    let self_addr = side.insert(side.name());
    for (number, len) in (1..).zip([8, 1000, 500_000]) {
        side.recv(Kind::Tagged, self_addr, len, number).unwrap();
        side.send(Kind::Tagged, self_addr, len, number).unwrap();
        let events = [side.next().ok(), side.next().ok()];
        let received = events.iter().find(|event| !event.bytes.is_empty()).unwrap();
        assert!(received.bytes == content(number, len));
    }
}

#[test]
fn endpoints_of_different_types_do_not_connect() {
    let _watchdog = Watchdog::new();
    let mut reliable = NumberedEndpoint::new();
    let mut datagram = NumberedEndpoint::open(None, &info(EpType::Dgram, &[])).unwrap();
    let to_datagram = reliable.insert(datagram.name());
    reliable.send(Kind::Tagged, to_datagram, 8, 1).unwrap();
    reliable.recv(Kind::Tagged, to_datagram, 8, 2).unwrap();
    assert_eq!(
        reliable.next().ok().context,
        1,
        "the message was sent before the refusal"
    );
    let lost = reliable.next_with(&mut [&mut datagram]);
    assert_eq!((lost.context, lost.errno()), (0, Errno::ConnRefused));
    let event = reliable.next();
    assert_eq!((event.context, event.errno()), (2, Errno::ConnRefused));
    let detail = event.error.unwrap().detail;
    assert!(
        detail.contains("FI_EP_DGRAM") && detail.contains("FI_EP_RDM"),
        "{detail}"
    );
    assert!(
        detail.ends_with("what was sent to it is lost: 1"),
        "{detail}"
    );
    let to_reliable = datagram.insert(reliable.name());
    datagram.send(Kind::Delivered, to_reliable, 8, 3).unwrap();
    let event = datagram.next_with(&mut [&mut reliable]);
    assert_eq!((event.context, event.errno()), (3, Errno::ConnRefused));
}
