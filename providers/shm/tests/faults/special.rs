//! Special memory: messages from it, and what becomes of it when its owner frees it or dies.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use selvedge::{Errno, FiAddr, MrAccess};

use crate::contact::unique;
use crate::denial::deny;
use crate::fork::{fork, reap};
use crate::process::{Puppet, alone};
use crate::shortage::limit_descriptors;
use crate::side::{Kind, Side, content};

const MIB: usize = 1 << 20;

/// Files of special memory that this process has mapped.
pub(crate) fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:selvedge-special"))
        .count()
}

/// A puppet, which knows us by the index that comes with it, and our index for it.
pub(crate) fn met(us: &mut Side) -> (Puppet, String, FiAddr) {
    let name = unique("owner");
    let mut puppet = Puppet::named(&name);
    let index = puppet.ask(&format!("insert {}", us.name()));
    us.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 999).unwrap();
    puppet.ask(&format!("send Tagged {index} 8 999"));
    us.next().ok();
    assert!(puppet.ask("next").starts_with("done"));
    (puppet, index, us.insert(name))
}

/// Receives a message from special memory of the puppet's.
fn receive(us: &mut Side, puppet: &mut Puppet, index: &str, block: u64, len: usize, pieces: usize) {
    let number = 1000 + block;
    us.recv(Kind::Tagged, FiAddr::UNSPEC, len, number).unwrap();
    let order = format!("sendfrom {block} {index} {len} {number} {pieces}");
    assert_eq!(puppet.ask(&order), "ok");
    puppet.tell("next");
    let event = us.next().ok();
    assert!(event.bytes == content(number, len));
    assert_eq!(puppet.answer(), format!("done {number}"));
}

#[test]
fn the_receiver_alone_copies_messages_from_special_memory() {
    alone(|| {
        let mut us = Side::new();
        // Neither of the other ways: no cross-memory attach, and no bounce memory at the sender.
        deny("process_vm_readv", libc::EPERM);
        let (mut puppet, index, _) = met(&mut us);
        assert_eq!(puppet.ask("alloc 1 4194304 0"), "ok");
        puppet.ask(&format!("deny memfd_create {}", libc::ENOMEM));
        for (len, pieces) in [(5000, 1), (MIB, 1), (3 * MIB + 7, 1), (MIB, 2), (9999, 4)] {
            receive(&mut us, &mut puppet, &index, 1, len, pieces);
        }
    });
}

#[test]
fn special_memory_that_cannot_be_mapped_is_read_another_way() {
    alone(|| {
        let mut us = Side::new();
        let (mut puppet, index, _) = met(&mut us);
        limit_address_space(32 * MIB);
        assert_eq!(puppet.ask(&format!("alloc 1 {} 0", 64 * MIB)), "ok");
        receive(&mut us, &mut puppet, &index, 1, MIB, 1);
        deny("process_vm_readv", libc::EPERM);
        receive(&mut us, &mut puppet, &index, 1, MIB, 1);
        assert_eq!(mapped(), 0);
    });
}

#[test]
fn news_of_many_blocks_is_not_lost_on_a_peer_that_does_not_listen() {
    alone(|| {
        let mut us = Side::new();
        deny("process_vm_readv", libc::EPERM);
        let (mut puppet, index, _) = met(&mut us);
        for block in 0..600 {
            assert_eq!(puppet.ask(&format!("alloc {block} 8192 0")), "ok");
        }
        for block in 0..200 {
            puppet.ask(&format!("free {block}"));
        }
        puppet.ask(&format!("deny memfd_create {}", libc::ENOMEM));
        // There are as many in between, too.
        let mut settled = 0;
        while settled < 3 {
            puppet.ask("drive 100");
            (0..1000).for_each(|_| us.drive());
            settled = if mapped() == 400 { settled + 1 } else { 0 };
        }
        for block in [200, 599] {
            receive(&mut us, &mut puppet, &index, block, 8000, 1);
        }
    });
}

#[test]
fn peers_that_come_later_know_the_memory_that_there_is_and_no_other() {
    alone(|| {
        let name = unique("owner");
        let mut puppet = Puppet::named(&name);
        for block in 0..5 {
            puppet.ask(&format!("alloc {block} 8192 0"));
        }
        puppet.ask("free 0");
        puppet.ask("drive on");
        for _ in 0..2 {
            let mut us = Side::new();
            let dest = us.insert(&name);
            us.send(Kind::Tagged, dest, 8, 1).unwrap();
            us.until(|_| mapped() == 4);
        }
    });
}

#[test]
fn peers_let_go_of_memory_that_its_owner_frees_or_leaves_behind() {
    alone(|| {
        let mut us = Side::new();
        for last_order in ["close", "exit", "stop"] {
            let (mut puppet, ..) = met(&mut us);
            puppet.ask("alloc 1 4096 0");
            puppet.ask("alloc 2 4096 0");
            us.until(|_| mapped() == 2);
            puppet.ask("free 1");
            us.until(|_| mapped() == 1);
            match last_order {
                "close" => drop(puppet.ask("close")),
                "exit" => puppet.tell("exit"),
                _ => {
                    puppet.signal(Signal::SIGSTOP);
                    puppet.kill();
                }
            }
            us.until(|_| mapped() == 0);
        }
    });
}

#[test]
fn memory_that_is_short_is_an_error_and_leaves_nothing() {
    alone(|| {
        let mut us = Side::new();
        let refused = us.alloc(1, 1 << 46, MrAccess::empty()).unwrap_err();
        assert_eq!(refused.errno(), Errno::NoMem, "{refused}");
        limit_address_space(32 * MIB);
        let refused = us.alloc(1, 64 * MIB, MrAccess::empty()).unwrap_err();
        assert_eq!(refused.errno(), Errno::NoMem, "{refused}");
        limit_descriptors(0);
        let refused = us.alloc(1, 4096, MrAccess::empty()).unwrap_err();
        assert_eq!(refused.errno(), Errno::MFile, "{refused}");
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        assert_eq!(mapped(), 0);
        us.alloc(1, 4096, MrAccess::empty()).unwrap();
        assert_eq!(mapped(), 1);
    });
}

#[test]
fn a_child_does_not_reach_special_memory_of_its_parent() {
    alone(|| {
        let mut us = Side::new();
        let (mut puppet, index, them) = met(&mut us);
        puppet.ask("alloc 1 8192 0");
        us.alloc(1, 8192, MrAccess::empty()).unwrap();
        us.until(|_| mapped() == 2);
        puppet.ask("recv Tagged 8192 5");
        us.send_special(1, them, 8000, 5, 1).unwrap();
        let child = fork(|| {
            assert_eq!(mapped(), 0);
            us.blocks.clear();
        });
        reap(child);
        assert_eq!(mapped(), 2);
        puppet.tell("next");
        assert_eq!(us.next().ok().context, 5);
        assert_eq!(puppet.answer(), "done 5 8000 good");
        receive(&mut us, &mut puppet, &index, 1, 8000, 1);
    });
}

/// Lets the process map `more` bytes than it does now.
fn limit_address_space(more: usize) {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').next().unwrap().parse().unwrap();
    let limit = (pages * 4096 + more) as u64;
    let (_, hard) = getrlimit(Resource::RLIMIT_AS).unwrap();
    setrlimit(Resource::RLIMIT_AS, limit, hard).unwrap();
}

#[test]
fn a_message_out_of_special_memory_is_whole_although_its_sender_was_killed() {
    alone(|| {
        let mut us = Side::new();
        let (mut puppet, index, _) = met(&mut us);
        let len = 64 * MIB;
        assert_eq!(puppet.ask(&format!("alloc 1 {len} 0")), "ok");
        receive(&mut us, &mut puppet, &index, 1, 5000, 1);
        us.recv(Kind::Tagged, FiAddr::UNSPEC, len, 7).unwrap();
        assert_eq!(puppet.ask(&format!("sendfrom 1 {index} {len} 7 1")), "ok");
        // It is met and begun, and not done by far.
        us.drive();
        puppet.kill();
        let event = us.next().ok();
        assert!(event.bytes == content(7, len));
        us.until(|_| mapped() == 0);
    });
}
