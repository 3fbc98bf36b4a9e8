//! Greetings and connections: garbled, false, silent, or too many.

use std::fs::File;
use std::os::fd::AsFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use selvedge::FiAddr;
use selvedge_shm::smr::doorbell::Doorbell;
use selvedge_shm::smr::{Memory, Writers};
use selvedge_testkit::usage::{Usage, private_after_trim};

use super::{BLOCK, Hostile, Intruder, RELEASE, Scene, hello, packet, region};
use crate::contact::unique;
use crate::death::Random;
use crate::process::alone;
use crate::side::{Kind, Side};

#[test]
fn garbled_greetings_are_refused_and_cost_nothing() {
    alone(|| {
        let mut random = Random::seeded();
        let mut scene = Scene::new();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let fds = [region.fd(), bell.fd()];
        let good = hello(&unique("garbled"), 1, &7);
        let before = Usage::now().unwrap();
        for len in 0..good.len() {
            let hostile = Hostile::connect(&scene.victim);
            hostile.say(&good[..len.min(76)], &fds);
            hostile.is_cut_off_by(&mut scene.victim);
        }
        for _ in 0..2000 {
            let hostile = Hostile::connect(&scene.victim);
            let mut bad = good.clone();
            for _ in 0..=random.below(4) {
                let place = random.below(100) as usize;
                bad[place] = random.word() as u8;
            }
            // Now and then it is all nonsense, too long, or in order.
            match random.below(10) {
                0 => bad.iter_mut().for_each(|byte| *byte = random.word() as u8),
                1 => bad.resize(5000, 0xff),
                _ => {}
            }
            hostile.say(&bad, &fds);
            (0..100).for_each(|_| scene.victim.drive());
            drop(hostile);
            (0..100).for_each(|_| scene.victim.drive());
        }
        scene.goes_on();
        scene.victim.until(|_| Usage::now().unwrap() == before);
    });
}

#[test]
fn descriptors_that_are_not_what_they_should_be_are_refused() {
    alone(|| {
        let mut scene = Scene::new();
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
                let hostile = Hostile::connect(&scene.victim);
                hostile.say(&good, &fds);
                hostile.is_cut_off_by(&mut scene.victim);
            }
        }
        for wrong in [
            pipe.as_fd(),
            directory.as_fd(),
            unsealed.as_fd(),
            region.fd(),
        ] {
            let hostile = Hostile::connect(&scene.victim);
            hostile.say(&good, &[region.fd(), wrong]);
            hostile.is_cut_off_by(&mut scene.victim);
        }
        scene.goes_on();
        assert_eq!(Usage::now().unwrap(), before);
    });
}

#[test]
fn strangers_with_ever_new_names_and_bad_regions_leave_no_memory() {
    alone(|| {
        let mut scene = Scene::new();
        let bell = Doorbell::create().unwrap().1;
        let bad = File::open("/dev/null").unwrap();
        let mut baseline = 0;
        for round in 0..6000 {
            let hostile = Hostile::connect(&scene.victim);
            let hello = hello(&format!("stranger{round}"), 1, &7);
            hostile.say(&hello, &[bad.as_fd(), bell.fd()]);
            hostile.is_cut_off_by(&mut scene.victim);
            if round == 1000 {
                baseline = private_after_trim().unwrap();
            }
        }
        let grown = private_after_trim().unwrap().saturating_sub(baseline);
        assert!(grown < 1 << 20, "memory has grown by {grown} bytes");
        scene.goes_on();
    });
}

/// Announces and frees a block until the socket is full. How many packets had room.
fn talk(hostile: &Hostile, memory: &Memory, block: &mut u64) -> usize {
    for said in 0.. {
        let is_news = block.is_multiple_of(2);
        let mut bytes = packet(if is_news { BLOCK } else { RELEASE });
        for field in [*block / 2 + 1, 1 << 20, 4096, 0] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(256, 0);
        let fds = [memory.fd()];
        if !hostile.try_say(&bytes, if is_news { &fds } else { &[] }) {
            return said;
        }
        *block += 1;
    }
    unreachable!("a socket has bounds")
}

#[test]
fn a_peer_that_talks_without_end_is_heard_a_few_packets_at_a_time() {
    alone(|| {
        let mut scene = Scene::new();
        let intruder = Intruder::enter(&mut scene.victim, &unique("talks"), 1, &7);
        let (memory, mut block) = (Memory::create(4096, Writers::Owner).unwrap(), 0);
        assert!(talk(&intruder.hostile, &memory, &mut block) > 100);
        for _ in 0..20 {
            let heard = loop {
                scene.victim.drive();
                match talk(&intruder.hostile, &memory, &mut block) {
                    0 => {}
                    heard => break heard,
                }
            };
            assert!(heard <= 32, "{heard} packets were heard in one poll");
        }
        scene.goes_on();
    });
}

#[test]
fn silent_connections_do_not_keep_others_out() {
    alone(|| {
        let mut scene = Scene::new();
        let before = Usage::now().unwrap();
        let mut silent = Vec::new();
        for round in 0..10 {
            silent.extend((0..50).map(|_| Hostile::connect(&scene.victim)));
            scene.goes_on();
            let mut late = Side::new();
            let to_victim = late.insert(scene.victim.name());
            scene
                .victim
                .recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1000 + round)
                .unwrap();
            late.send(Kind::Delivered, to_victim, 8, 1000 + round)
                .unwrap();
            late.next_with(&mut [&mut scene.victim]).ok();
            scene.victim.next().ok();
        }
        // Some are kept, and not one for each.
        scene
            .victim
            .until(|_| Usage::now().unwrap().fds <= before.fds + silent.len() + 64);
        // Their patience ends.
        scene
            .victim
            .until(|_| Usage::now().unwrap().fds == before.fds + silent.len());
        assert!(silent.iter().all(|hostile| hostile.hear().is_none()));
    });
}

#[test]
fn whoever_has_said_hello_is_met_however_few_connections_are_kept() {
    alone(|| {
        let mut side = Side::with(None, &[("FI_SHM_PENDING", "1")]);
        let name = side.name();
        let mut others: Vec<_> = (0..40).map(|_| Side::new()).collect();
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
fn nobody_takes_the_name_of_a_peer_that_lives() {
    alone(|| {
        let mut scene = Scene::new();
        let name = scene.other.name();
        let name = name.strip_prefix("fi_shm://").unwrap();
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        for incarnation in 0..20 {
            let hostile = Hostile::connect(&scene.victim);
            hostile.say(&hello(name, incarnation, &7), &[region.fd(), bell.fd()]);
            hostile.is_cut_off_by(&mut scene.victim);
            scene.goes_on();
        }
    });
}

#[test]
fn a_peer_has_two_sockets_and_one_bounce_region_at_most() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let name = unique("greedy");
        let mut intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        let fds = [region.fd(), bell.fd()];
        let more: Vec<_> = (0..3).map(|_| Hostile::connect(&scene.victim)).collect();
        for hostile in &more {
            hostile.say(&hello(&name, 5, &nonce), &fds);
        }
        more[1].is_cut_off_by(&mut scene.victim);
        more[2].is_cut_off_by(&mut scene.victim);
        let is_open = |hostile: &Hostile| hostile.hear().is_some();
        assert!(is_open(&more[0]) && is_open(&intruder.hostile));
        let mut random = Random::seeded();
        intruder.segment(&mut random);
        (0..1000).for_each(|_| scene.victim.drive());
        assert!(is_open(&intruder.hostile));
        intruder.bounce = None;
        intruder.segment(&mut random);
        intruder.hostile.is_cut_off_by(&mut scene.victim);
        scene.goes_on();
    });
}

#[test]
fn a_peer_that_greets_again_and_again_is_cut_off() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let name = unique("polite");
        let intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
        let (region, (_, bell)) = (region(), Doorbell::create().unwrap());
        intruder
            .hostile
            .say(&hello(&name, 5, &nonce), &[region.fd(), bell.fd()]);
        intruder.hostile.is_cut_off_by(&mut scene.victim);
        scene.goes_on();
    });
}
