//! Special memory: messages from special memory, and the effect on peers when its owner frees it or
//! is killed.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use selvedge::{Errno, FiAddr, MrAccess};

use crate::connect::unique;
use crate::denial::deny;
use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::fork::{fork, reap};
use crate::process::{PeerProcess, alone};
use crate::shortage::limit_descriptors;

const MIB: usize = 1 << 20;

/// Returns the number of files of special memory that this process has mapped.
pub(crate) fn count_mapped_files() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("memfd:selvedge-special"))
        .count()
}

/// Starts a peer process that is connected to `side`. Returns it with the index of `side` in the
/// peer process's address vector, and with the peer's address.
pub(crate) fn connected_peer(side: &mut NumberedEndpoint) -> (PeerProcess, String, FiAddr) {
    let name = unique("owner");
    let mut peer_process = PeerProcess::named(&name);
    let index = peer_process.request(&format!("insert {}", side.name()));
    side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 999).unwrap();
    peer_process.request(&format!("send Tagged {index} 8 999"));
    side.next().ok();
    assert!(peer_process.request("next").starts_with("done"));
    (peer_process, index, side.insert(name))
}

/// Receives a message from special memory of the peer process.
fn receive(
    side: &mut NumberedEndpoint,
    peer_process: &mut PeerProcess,
    index: &str,
    block: u64,
    len: usize,
    segments: usize,
) {
    let number = 1000 + block;
    side.recv(Kind::Tagged, FiAddr::UNSPEC, len, number)
        .unwrap();
    let request = format!("sendfrom {block} {index} {len} {number} {segments}");
    assert_eq!(peer_process.request(&request), "ok");
    peer_process.send_request("next");
    let event = side.next().ok();
    assert!(event.bytes == content(number, len));
    assert_eq!(peer_process.response(), format!("done {number}"));
}

#[test]
fn the_receiver_alone_copies_messages_from_special_memory() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        // No other protocol is possible: no cross-memory attach, and no bounce memory at the
        // sender.
        deny("process_vm_readv", libc::EPERM);
        let (mut peer_process, index, _) = connected_peer(&mut side);
        assert_eq!(peer_process.request("alloc 1 4194304 0"), "ok");
        peer_process.request(&format!("deny memfd_create {}", libc::ENOMEM));
        for (len, segments) in [(5000, 1), (MIB, 1), (3 * MIB + 7, 1), (MIB, 2), (9999, 4)] {
            receive(&mut side, &mut peer_process, &index, 1, len, segments);
        }
    });
}

#[test]
fn special_memory_that_cannot_be_mapped_is_read_by_another_protocol() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, index, _) = connected_peer(&mut side);
        limit_address_space(32 * MIB);
        assert_eq!(
            peer_process.request(&format!("alloc 1 {} 0", 64 * MIB)),
            "ok"
        );
        receive(&mut side, &mut peer_process, &index, 1, MIB, 1);
        deny("process_vm_readv", libc::EPERM);
        receive(&mut side, &mut peer_process, &index, 1, MIB, 1);
        assert_eq!(count_mapped_files(), 0);
    });
}

#[test]
fn announcements_of_many_blocks_reach_a_peer_that_makes_no_progress_at_first() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        deny("process_vm_readv", libc::EPERM);
        let (mut peer_process, index, _) = connected_peer(&mut side);
        for block in 0..600 {
            assert_eq!(peer_process.request(&format!("alloc {block} 8192 0")), "ok");
        }
        for block in 0..200 {
            peer_process.request(&format!("free {block}"));
        }
        peer_process.request(&format!("deny memfd_create {}", libc::ENOMEM));
        // The count may be right for a moment before the last announcement.
        let mut stable_reads = 0;
        while stable_reads < 3 {
            peer_process.request("drive 100");
            (0..1000).for_each(|_| side.drive());
            stable_reads = if count_mapped_files() == 400 {
                stable_reads + 1
            } else {
                0
            };
        }
        for block in [200, 599] {
            receive(&mut side, &mut peer_process, &index, block, 8000, 1);
        }
    });
}

#[test]
fn peers_that_connect_later_map_the_blocks_that_exist_and_no_others() {
    alone(|| {
        let name = unique("owner");
        let mut peer_process = PeerProcess::named(&name);
        for block in 0..5 {
            peer_process.request(&format!("alloc {block} 8192 0"));
        }
        peer_process.request("free 0");
        peer_process.request("drive on");
        for _ in 0..2 {
            let mut side = NumberedEndpoint::new();
            let dest = side.insert(&name);
            side.send(Kind::Tagged, dest, 8, 1).unwrap();
            side.until(|_| count_mapped_files() == 4);
        }
    });
}

#[test]
fn peers_unmap_blocks_that_their_owner_frees_or_leaves_behind() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        for last_request in ["close", "exit", "stop"] {
            let (mut peer_process, ..) = connected_peer(&mut side);
            peer_process.request("alloc 1 4096 0");
            peer_process.request("alloc 2 4096 0");
            side.until(|_| count_mapped_files() == 2);
            peer_process.request("free 1");
            side.until(|_| count_mapped_files() == 1);
            match last_request {
                "close" => drop(peer_process.request("close")),
                "exit" => peer_process.send_request("exit"),
                _ => {
                    peer_process.signal(Signal::SIGSTOP);
                    peer_process.kill();
                }
            }
            side.until(|_| count_mapped_files() == 0);
        }
    });
}

#[test]
fn an_allocation_without_memory_fails_and_leaves_no_mapping() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let error = side.alloc(1, 1 << 46, MrAccess::empty()).unwrap_err();
        assert_eq!(error.errno(), Errno::NoMem, "{error}");
        limit_address_space(32 * MIB);
        let error = side.alloc(1, 64 * MIB, MrAccess::empty()).unwrap_err();
        assert_eq!(error.errno(), Errno::NoMem, "{error}");
        limit_descriptors(0);
        let error = side.alloc(1, 4096, MrAccess::empty()).unwrap_err();
        assert_eq!(error.errno(), Errno::MFile, "{error}");
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        assert_eq!(count_mapped_files(), 0);
        side.alloc(1, 4096, MrAccess::empty()).unwrap();
        assert_eq!(count_mapped_files(), 1);
    });
}

#[test]
fn a_child_does_not_reach_special_memory_of_its_parent() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, index, peer_addr) = connected_peer(&mut side);
        peer_process.request("alloc 1 8192 0");
        side.alloc(1, 8192, MrAccess::empty()).unwrap();
        side.until(|_| count_mapped_files() == 2);
        peer_process.request("recv Tagged 8192 5");
        side.send_special(1, peer_addr, 8000, 5, 1).unwrap();
        let child = fork(|| {
            assert_eq!(count_mapped_files(), 0);
            side.blocks.clear();
        });
        reap(child);
        assert_eq!(count_mapped_files(), 2);
        peer_process.send_request("next");
        assert_eq!(side.next().ok().context, 5);
        assert_eq!(peer_process.response(), "done 5 8000 good");
        receive(&mut side, &mut peer_process, &index, 1, 8000, 1);
    });
}

/// Limits the process to its mapped bytes and `more` further ones.
fn limit_address_space(more: usize) {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').next().unwrap().parse().unwrap();
    let limit = (pages * 4096 + more) as u64;
    let (_, hard) = getrlimit(Resource::RLIMIT_AS).unwrap();
    setrlimit(Resource::RLIMIT_AS, limit, hard).unwrap();
}

#[test]
fn a_message_from_special_memory_is_received_although_its_sender_was_killed() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, index, _) = connected_peer(&mut side);
        let len = 64 * MIB;
        assert_eq!(peer_process.request(&format!("alloc 1 {len} 0")), "ok");
        receive(&mut side, &mut peer_process, &index, 1, 5000, 1);
        side.recv(Kind::Tagged, FiAddr::UNSPEC, len, 7).unwrap();
        assert_eq!(
            peer_process.request(&format!("sendfrom 1 {index} {len} 7 1")),
            "ok"
        );
        // The copy has begun, and is far from complete.
        side.drive();
        peer_process.kill();
        let event = side.next().ok();
        assert!(event.bytes == content(7, len));
        side.until(|_| count_mapped_files() == 0);
    });
}
