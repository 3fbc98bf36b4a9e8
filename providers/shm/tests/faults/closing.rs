//! Closing with operations outstanding, and in every order.

use selvedge::{Errno, FiAddr};
use selvedge_testkit::long::part;
use selvedge_testkit::usage::{Usage, memory, private_after_trim};

use crate::endpoint::{Kind, NumberedEndpoint, content, info};
use crate::process::{PeerProcess, Watchdog, alone};

/// Protocols of a large message.
const PROTOCOLS: [&str; 3] = ["auto", "cma", "bounce"];

fn open_pair(protocol: &str) -> (NumberedEndpoint, NumberedEndpoint, FiAddr, FiAddr) {
    let params = [("FI_SHM_PROTOCOL", protocol)];
    let (a, b) = (
        NumberedEndpoint::with_params(None, &params),
        NumberedEndpoint::with_params(None, &params),
    );
    let (to_b, to_a) = (a.insert(b.name()), b.insert(a.name()));
    (a, b, to_b, to_a)
}

#[test]
fn a_sender_that_closes_leaves_right_bytes_or_an_error() {
    let _watchdog = Watchdog::new();
    for protocol in PROTOCOLS {
        for len in [8, 3000, 100_000, 4_000_000] {
            for steps in [0, 1, 2, 5, 20, 100] {
                let (mut a, mut b, to_b, to_a) = open_pair(protocol);
                b.recv(Kind::Tagged, to_a, len, 1).unwrap();
                b.recv(Kind::Tagged, to_a, len, 3).unwrap();
                for number in [1, 2, 3] {
                    a.send(Kind::Tagged, to_b, len, number).unwrap();
                }
                for _ in 0..steps {
                    a.drive();
                    b.drive();
                }
                // Dropping the sender overwrites its buffers.
                drop(a);
                for _ in 0..2 {
                    let event = b.next();
                    match &event.error {
                        None => assert!(
                            event.bytes == content(event.context, len),
                            "bytes of a dropped buffer"
                        ),
                        Some(error) => assert_eq!(error.errno, Errno::ConnReset),
                    }
                    assert!(len > 4096 || event.error.is_none(), "{event:?}");
                }
                // The unexpected message is still kept.
                match b.recv(Kind::Tagged, to_a, len, 2) {
                    Err(errno) => assert!(errno == Errno::NotConn && len > 4096),
                    Ok(()) => {
                        let event = b.next();
                        let is_good = event.error.is_none() && event.bytes == content(2, len);
                        assert!(is_good || len > 4096 && event.errno() == Errno::ConnReset);
                    }
                }
                assert!(b.is_idle());
            }
        }
    }
}

#[test]
fn a_receiver_that_closes_fails_unconfirmed_sends() {
    let _watchdog = Watchdog::new();
    for protocol in PROTOCOLS {
        for len in [8, 3000, 4_000_000] {
            for steps in [0, 1, 2, 5, 20, 100] {
                let (mut a, mut b, to_b, to_a) = open_pair(protocol);
                b.recv(Kind::Tagged, to_a, len, 1).unwrap();
                for number in [1, 2] {
                    a.send(Kind::Delivered, to_b, len, number).unwrap();
                }
                for _ in 0..steps {
                    a.drive();
                    b.drive();
                }
                drop(b);
                let mut errors = 0;
                while !a.is_idle() {
                    let event = a.next();
                    match &event.error {
                        None => assert_eq!(event.context, 1, "2 was never received"),
                        Some(error) => {
                            assert_eq!((error.errno, event.src), (Errno::ConnReset, to_b));
                            errors += 1;
                        }
                    }
                }
                assert!(errors >= 1);
            }
        }
    }
}

#[test]
fn both_sides_may_close_at_once() {
    let _watchdog = Watchdog::new();
    for round in 0..part(60, 300) {
        let (mut a, mut b, to_b, to_a) = open_pair(PROTOCOLS[round % 3]);
        for (number, len) in (1..).zip([8, 3000, 500_000]) {
            a.send(Kind::Delivered, to_b, len, number).unwrap();
            b.send(Kind::Tagged, to_a, len, number).unwrap();
            b.recv(Kind::Tagged, to_a, len, number + 10).unwrap();
        }
        for _ in 0..round % 7 {
            a.drive();
            b.drive();
        }
        let other = std::thread::spawn(move || drop(a));
        drop(b);
        other.join().unwrap();
    }
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    let _watchdog = Watchdog::new();
    for order in 0..24 {
        let (mut a, mut b, to_b, to_a) = open_pair("auto");
        a.send(Kind::Tagged, to_b, 100_000, 1).unwrap();
        b.recv(Kind::Tagged, to_a, 100_000, 1).unwrap();
        let name = a.name();
        let (ep, cq, av, domain) = a.into_handles();
        let mut handles: Vec<Option<Box<dyn Send>>> = vec![
            Some(Box::new(ep)),
            Some(Box::new(cq)),
            Some(Box::new(av)),
            Some(Box::new(domain)),
        ];
        let mut remaining: Vec<_> = (0..4).collect();
        let mut code = order;
        while !remaining.is_empty() {
            let index = remaining.remove(code % remaining.len());
            code /= 4 - remaining.len();
            handles[index] = None;
            b.drive();
        }
        b.next();
        NumberedEndpoint::named(&name);
    }
}

#[test]
fn endpoints_that_connect_once_leave_no_memory() {
    alone(|| {
        let mut host = NumberedEndpoint::new();
        let mut baseline = 0;
        for round in 0..part(2000, 6000) {
            let mut guest = NumberedEndpoint::new();
            let to_host = guest.insert(host.name());
            host.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
            guest.send(Kind::Tagged, to_host, 8, 1).unwrap();
            host.next_with(&mut [&mut guest]).ok();
            if round == 1000 {
                baseline = private_after_trim().unwrap();
            }
        }
        let grown = private_after_trim().unwrap().saturating_sub(baseline);
        assert!(grown < 1 << 20, "memory has grown by {grown} bytes");
    });
}

#[test]
fn messages_of_a_closed_endpoint_keep_their_source_when_others_connect() {
    alone(|| {
        let mut host = NumberedEndpoint::new();
        let mut first = NumberedEndpoint::new();
        let name = first.name();
        let to_host = first.insert(host.name());
        first.send(Kind::Tagged, to_host, 8, 99).unwrap();
        first.next_with(&mut [&mut host]).ok();
        drop(first);
        for _ in 0..10 {
            let mut guest = NumberedEndpoint::new();
            let to_host = guest.insert(host.name());
            host.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
            guest.send(Kind::Tagged, to_host, 8, 1).unwrap();
            host.next_with(&mut [&mut guest]).ok();
        }
        let first = host.insert(name);
        host.recv(Kind::Tagged, first, 8, 99).unwrap();
        let event = host.next().ok();
        assert_eq!((event.src, event.bytes), (first, content(99, 8)));
    });
}

#[test]
fn ten_thousand_endpoints_leave_nothing() {
    alone(|| {
        let mut peer = NumberedEndpoint::new();
        let name = peer.name();
        let start = std::time::Instant::now();
        let mut baseline = None;
        let count = part(2000, 10_000);
        for round in 0..count {
            let mut side = NumberedEndpoint::new();
            if round % 100 == 0 {
                let to_peer = side.insert(&name);
                peer.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
                side.send(Kind::Delivered, to_peer, 8, 1).unwrap();
                side.next_with(&mut [&mut peer]).ok();
                peer.next().ok();
            }
            drop(side);
            peer.drive();
            if round == 1000 {
                (0..1000).for_each(|_| peer.drive());
                baseline = Some((Usage::now().unwrap(), private_after_trim().unwrap()));
            }
        }
        println!("{count} endpoints: {:?}", start.elapsed());
        (0..1000).for_each(|_| peer.drive());
        let (usage_before, private_before) = baseline.unwrap();
        assert_eq!(Usage::now().unwrap(), usage_before);
        let grown = private_after_trim().unwrap().saturating_sub(private_before);
        assert!(grown < 2 << 20, "memory has grown by {grown} bytes");
    });
}

#[test]
fn an_idle_endpoint_takes_little_memory() {
    alone(|| {
        const COUNT: usize = 100;
        let info = info(selvedge::info::EpType::Rdm, &[]);
        drop(NumberedEndpoint::open(None, &info).unwrap());
        let before = memory("self", "Pss:").unwrap();
        let sides: Vec<_> = (0..COUNT)
            .map(|_| NumberedEndpoint::open(None, &info).unwrap())
            .collect();
        // The memory file is committed and never touched: the process is not charged for the file.
        let shared = Usage::now().unwrap().shared;
        let bytes_per_endpoint = (memory("self", "Pss:").unwrap() - before + shared) / COUNT;
        println!("an idle endpoint: {} KiB", bytes_per_endpoint / 1024);
        assert!(
            bytes_per_endpoint <= 256 << 10,
            "{bytes_per_endpoint} bytes"
        );
        drop(sides);
    });
}

#[test]
fn a_peer_that_exits_is_reported_as_a_peer_that_closes() {
    let _watchdog = Watchdog::new();
    for request in ["close", "exit"] {
        let mut side = NumberedEndpoint::new();
        let name = crate::connect::unique(request);
        let mut peer_process = PeerProcess::named(&name);
        let (peer_addr, side_addr) = (
            side.insert(&name),
            peer_process.request(&format!("insert {}", side.name())),
        );
        peer_process.request(&format!("send Tagged {side_addr} 8 1"));
        peer_process.request(&format!("send Tagged {side_addr} 2000 2"));
        peer_process.request(&format!("send Tagged {side_addr} 200000 3"));
        peer_process.send_request(request);
        if request == "close" {
            assert_eq!(peer_process.response(), "ok");
        }
        for (number, len) in (1..).zip([8, 2000, 200_000]) {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, len, number)
                .unwrap();
        }
        side.recv(Kind::Tagged, peer_addr, 8, 4).unwrap();
        assert_eq!(side.next().ok().bytes, content(1, 8));
        assert_eq!(side.next().ok().bytes, content(2, 2000));
        let mut failed = [side.next(), side.next()].map(|e| (e.context, e.errno()));
        failed.sort_unstable_by_key(|&(context, _)| context);
        assert_eq!(failed, [(3, Errno::ConnReset), (4, Errno::ConnReset)]);
    }
}
