//! Hellos and connections: garbled, forged, silent, or too many.

use std::fs::File;
use std::os::fd::AsFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use selvedge::FiAddr;
use selvedge_shm::smr::doorbell::Doorbell;
use selvedge_shm::smr::{Memory, Writers};
use selvedge_testkit::usage::{Usage, private_after_trim};

use super::{BLOCK, HostileConnection, HostilePeer, RELEASE, Scenario, hello, packet, region};
use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint};
use crate::peer_failure::Random;
use crate::process::alone;

#[test]
fn garbled_hellos_are_refused_and_leak_nothing() {
    alone(|| {
        let mut random = Random::seeded();
        let mut scenario = Scenario::new();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let fds = [region.fd(), bell.fd()];
        let good = hello(&unique("garbled"), 1, &7);
        let before = Usage::now().unwrap();
        for len in 0..good.len() {
            let hostile = HostileConnection::connect(&scenario.target);
            hostile.send(&good[..len.min(76)], &fds);
            hostile.expect_cut_off_by(&mut scenario.target);
        }
        for _ in 0..2000 {
            let hostile = HostileConnection::connect(&scenario.target);
            let mut bad = good.clone();
            for _ in 0..=random.below(4) {
                let offset = random.below(100) as usize;
                bad[offset] = random.word() as u8;
            }
            // Some packets are random, too long, or valid.
            match random.below(10) {
                0 => bad.iter_mut().for_each(|byte| *byte = random.word() as u8),
                1 => bad.resize(5000, 0xff),
                _ => {}
            }
            hostile.send(&bad, &fds);
            (0..100).for_each(|_| scenario.target.drive());
            drop(hostile);
            (0..100).for_each(|_| scenario.target.drive());
        }
        scenario.expect_traffic();
        scenario.target.until(|_| Usage::now().unwrap() == before);
    });
}

#[test]
fn descriptors_of_a_wrong_kind_are_refused() {
    alone(|| {
        let mut scenario = Scenario::new();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        let directory = File::open("/").unwrap();
        let device = File::open("/dev/zero").unwrap();
        let unsealed = nix::sys::memfd::memfd_create("x", nix::sys::memfd::MFdFlags::empty());
        let unsealed = File::from(unsealed.unwrap());
        unsealed.set_len(94208).unwrap();
        let small = Memory::create(4096, Writers::Owner).unwrap();
        let empty = Memory::create(94208, Writers::Owner).unwrap();
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        let wrong = [
            pipe.as_fd(),
            directory.as_fd(),
            device.as_fd(),
            unsealed.as_fd(),
            small.fd(),
            empty.fd(),
            listener.as_fd(),
        ];
        let good = hello(&unique("wrong-fd"), 1, &7);
        let before = Usage::now().unwrap();
        for wrong in wrong {
            for fds in [
                vec![wrong, bell.fd()],
                vec![wrong],
                vec![],
                vec![wrong; 100],
            ] {
                let hostile = HostileConnection::connect(&scenario.target);
                hostile.send(&good, &fds);
                hostile.expect_cut_off_by(&mut scenario.target);
            }
        }
        for wrong in [
            pipe.as_fd(),
            directory.as_fd(),
            unsealed.as_fd(),
            region.fd(),
        ] {
            let hostile = HostileConnection::connect(&scenario.target);
            hostile.send(&good, &[region.fd(), wrong]);
            hostile.expect_cut_off_by(&mut scenario.target);
        }
        scenario.expect_traffic();
        assert_eq!(Usage::now().unwrap(), before);
    });
}

#[test]
fn connections_with_new_names_and_bad_regions_leave_no_memory() {
    alone(|| {
        let mut scenario = Scenario::new();
        let bell = Doorbell::create().unwrap().1;
        let bad = File::open("/dev/null").unwrap();
        let mut baseline = 0;
        for round in 0..6000 {
            let hostile = HostileConnection::connect(&scenario.target);
            let hello = hello(&format!("new{round}"), 1, &7);
            hostile.send(&hello, &[bad.as_fd(), bell.fd()]);
            hostile.expect_cut_off_by(&mut scenario.target);
            if round == 1000 {
                baseline = private_after_trim().unwrap();
            }
        }
        let grown = private_after_trim().unwrap().saturating_sub(baseline);
        assert!(grown < 1 << 20, "memory has grown by {grown} bytes");
        scenario.expect_traffic();
    });
}

/// Announces and frees a block until the socket is full. Returns the number of packets sent.
fn fill_socket(hostile: &HostileConnection, memory: &Memory, block: &mut u64) -> usize {
    for sent in 0.. {
        let is_announcement = block.is_multiple_of(2);
        let mut bytes = packet(if is_announcement { BLOCK } else { RELEASE });
        for field in [*block / 2 + 1, 1 << 20, 4096, 0] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(256, 0);
        let fds = [memory.fd()];
        if !hostile.try_send(&bytes, if is_announcement { &fds } else { &[] }) {
            return sent;
        }
        *block += 1;
    }
    unreachable!("a socket has bounds")
}

#[test]
fn packets_of_one_peer_are_read_a_few_at_a_time() {
    alone(|| {
        let mut scenario = Scenario::new();
        let hostile_peer = HostilePeer::connect(&mut scenario.target, &unique("talks"), 1, &7);
        let (memory, mut block) = (Memory::create(4096, Writers::Owner).unwrap(), 0);
        assert!(fill_socket(&hostile_peer.hostile, &memory, &mut block) > 100);
        for _ in 0..20 {
            let taken = loop {
                scenario.target.drive();
                match fill_socket(&hostile_peer.hostile, &memory, &mut block) {
                    0 => {}
                    taken => break taken,
                }
            };
            assert!(taken <= 32, "{taken} packets were taken in one poll");
        }
        scenario.expect_traffic();
    });
}

#[test]
fn silent_connections_do_not_keep_others_out() {
    alone(|| {
        let mut scenario = Scenario::new();
        let before = Usage::now().unwrap();
        let mut silent = Vec::new();
        for round in 0..10 {
            silent.extend((0..50).map(|_| HostileConnection::connect(&scenario.target)));
            scenario.expect_traffic();
            let mut late = NumberedEndpoint::new();
            let to_target = late.insert(scenario.target.name());
            scenario
                .target
                .recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1000 + round)
                .unwrap();
            late.send(Kind::Delivered, to_target, 8, 1000 + round)
                .unwrap();
            late.next_with(&mut [&mut scenario.target]).ok();
            scenario.target.next().ok();
        }
        // The target keeps a bounded number of silent connections.
        scenario
            .target
            .until(|_| Usage::now().unwrap().fds <= before.fds + silent.len() + 64);
        // The silent connections time out.
        scenario
            .target
            .until(|_| Usage::now().unwrap().fds == before.fds + silent.len());
        assert!(silent.iter().all(|hostile| hostile.receive().is_none()));
    });
}

#[test]
fn every_peer_with_a_hello_is_connected_however_few_connections_are_kept() {
    alone(|| {
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PENDING", "1")]);
        let name = side.name();
        let mut others: Vec<_> = (0..40).map(|_| NumberedEndpoint::new()).collect();
        for (number, other) in others.iter_mut().enumerate() {
            let to_side = other.insert(&name);
            other.send(Kind::Tagged, to_side, 8, number as u64).unwrap();
        }
        for number in 0..others.len() as u64 {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, number).unwrap();
            assert_eq!(side.next().ok().context, number);
        }
    });
}

#[test]
fn no_process_takes_the_name_of_a_connected_peer() {
    alone(|| {
        let mut scenario = Scenario::new();
        let name = scenario.other.name();
        let name = name.strip_prefix("fi_shm://").unwrap();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        for incarnation in 0..20 {
            let hostile = HostileConnection::connect(&scenario.target);
            hostile.send(&hello(name, incarnation, &7), &[region.fd(), bell.fd()]);
            hostile.expect_cut_off_by(&mut scenario.target);
            scenario.expect_traffic();
        }
    });
}

#[test]
fn a_peer_has_two_sockets_and_one_bounce_region_at_most() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let name = unique("greedy");
        let mut hostile_peer = HostilePeer::connect(&mut scenario.target, &name, 5, &nonce);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let fds = [region.fd(), bell.fd()];
        let more: Vec<_> = (0..3)
            .map(|_| HostileConnection::connect(&scenario.target))
            .collect();
        for hostile in &more {
            hostile.send(&hello(&name, 5, &nonce), &fds);
        }
        more[1].expect_cut_off_by(&mut scenario.target);
        more[2].expect_cut_off_by(&mut scenario.target);
        let is_open = |hostile: &HostileConnection| hostile.receive().is_some();
        assert!(is_open(&more[0]) && is_open(&hostile_peer.hostile));
        let mut random = Random::seeded();
        hostile_peer.send_segment(&mut random);
        (0..1000).for_each(|_| scenario.target.drive());
        assert!(is_open(&hostile_peer.hostile));
        hostile_peer.bounce = None;
        hostile_peer.send_segment(&mut random);
        hostile_peer.hostile.expect_cut_off_by(&mut scenario.target);
        scenario.expect_traffic();
    });
}

#[test]
fn a_peer_that_repeats_its_hello_is_cut_off() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let name = unique("polite");
        let hostile_peer = HostilePeer::connect(&mut scenario.target, &name, 5, &nonce);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        hostile_peer
            .hostile
            .send(&hello(&name, 5, &nonce), &[region.fd(), bell.fd()]);
        hostile_peer.hostile.expect_cut_off_by(&mut scenario.target);
        scenario.expect_traffic();
    });
}
