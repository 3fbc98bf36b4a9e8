//! Forged key tables: entries for memory that does not exist, or lies outside of the block.

use std::os::fd::AsFd;

use selvedge::atomic::Op;
use selvedge::rma::RmaIov;
use selvedge_shm::smr::Writers;
use selvedge_shm::smr::keys::{Chunk, KeyEntry, Kind as Memory, RIGHT_READ, RIGHT_WRITE};
use selvedge_shm::smr::special::{Block, PageSize};

use super::{BLOCK, HostilePeer, Scenario, packet};
use crate::atomics::{KEY, Protocol, RemoteWord, poll};
use crate::connect::unique;
use crate::process::alone;

/// The announced address of the hostile peer's block, and its length.
const BASE: u64 = 1 << 32;
const LEN: u64 = 8192;

fn forged_entries() -> Vec<KeyEntry> {
    let valid = KeyEntry {
        key: KEY,
        start: 0,
        len: LEN,
        rights: RIGHT_READ | RIGHT_WRITE,
        kind: Memory::Special,
        memory: BASE,
        block: 1,
    };
    let mut entries = vec![valid];
    // Beside the block, across its ends, or at an unaligned address of it.
    for memory in [
        BASE - 8,
        BASE + 1,
        BASE + 8,
        BASE + LEN,
        0,
        u64::MAX,
        u64::MAX - 7,
    ] {
        entries.push(KeyEntry { memory, ..valid });
        let len = LEN / 2;
        entries.push(KeyEntry {
            memory,
            len,
            ..valid
        });
    }
    for len in [0, 7, LEN + 1, u64::MAX, u64::MAX - BASE] {
        entries.push(KeyEntry { len, ..valid });
    }
    for start in [u64::MAX, u64::MAX - 7, 8, u64::MAX - LEN] {
        entries.push(KeyEntry { start, ..valid });
        let len = u64::MAX;
        entries.push(KeyEntry {
            start,
            len,
            ..valid
        });
    }
    for block in [0, 2, u64::MAX] {
        entries.push(KeyEntry { block, ..valid });
    }
    for kind in [Memory::Plain, Memory::Whole] {
        for memory in [0, 8, BASE, u64::MAX - LEN, u64::MAX] {
            let len = u64::MAX - memory;
            entries.push(KeyEntry {
                kind,
                memory,
                len,
                ..valid
            });
        }
    }
    entries.push(KeyEntry {
        rights: u32::MAX,
        ..valid
    });
    entries
}

#[test]
fn key_entries_of_absent_memory_fail_operations_and_disturb_nothing_else() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let name = unique("forger");
        let (_memory, fd) =
            Block::create(LEN as usize, Writers::AnyProcess, PageSize::Ordinary).unwrap();
        let mut block = packet(BLOCK);
        for word in [1, BASE, LEN] {
            block.extend(u64::to_le_bytes(word));
        }
        block.extend(1_u32.to_le_bytes());
        block.resize(256, 0);
        for entry in forged_entries() {
            let mut chunk = Chunk::create(0).unwrap();
            chunk.publish(KEY as usize, &entry);
            let target = &mut scenario.target;
            let forger = HostilePeer::connect_with_keys(target, &name, &nonce, &chunk);
            forger.hostile.send(&block, &[fd.as_fd()]);
            (0..1000).for_each(|_| target.drive());
            let dest = target.insert(&name);
            let (mut posted, mut done) = (0_u64, 0);
            for addr in [0, 1, 8, LEN - 8, LEN, BASE, u64::MAX - 7, u64::MAX] {
                for len in [0, 8, 9, 4096, LEN as usize] {
                    let segment = RmaIov {
                        addr,
                        len,
                        key: KEY,
                    };
                    for segments in [&[segment][..], &[segment; 2]] {
                        let total = len * segments.len();
                        let (read, write) = (10_000 + posted, 10_001 + posted);
                        posted += u64::from(target.read_from(dest, segments, total, read).is_ok());
                        let bytes = vec![7; total];
                        posted += u64::from(target.write(dest, segments, &bytes, write).is_ok());
                    }
                }
                for protocol in [Protocol::Direct, Protocol::Command] {
                    let remote_word = RemoteWord {
                        dest,
                        addr,
                        protocol,
                    };
                    posted += u64::from(remote_word.post(target, Op::Sum, 1, None).is_ok());
                    posted += u64::from(remote_word.post(target, Op::AtomicRead, 1, None).is_ok());
                }
                while poll(target).is_some() {
                    done += 1;
                }
            }
            drop(forger);
            // The operations on the hostile peer's memory end with the peer.
            while done < posted {
                done += u64::from(poll(target).is_some());
            }
            (0..1000).for_each(|_| assert!(poll(target).is_none(), "{entry:?}"));
            assert!(posted > 0);
            scenario.expect_traffic();
        }
    });
}

/// The packet that announces the hostile peer's block.
fn announcement(len: u64, is_writable: bool) -> Vec<u8> {
    let mut block = packet(BLOCK);
    for word in [1, BASE, len] {
        block.extend(u64::to_le_bytes(word));
    }
    block.extend(u32::from(is_writable).to_le_bytes());
    block.resize(256, 0);
    block
}

#[test]
fn a_block_that_is_read_only_is_not_written_whatever_its_key_grants() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let (_memory, fd) =
            Block::create(LEN as usize, Writers::AnyProcess, PageSize::Ordinary).unwrap();
        let mut chunk = Chunk::create(0).unwrap();
        chunk.publish(KEY as usize, &forged_entries()[0]);
        let (target, name) = (&mut scenario.target, unique("reader"));
        let forger = HostilePeer::connect_with_keys(target, &name, &nonce, &chunk);
        forger
            .hostile
            .send(&announcement(LEN, false), &[fd.as_fd()]);
        (0..1000).for_each(|_| target.drive());
        let dest = target.insert(&name);
        let segment = |len| RmaIov {
            addr: 0,
            len,
            key: KEY,
        };
        let mut contexts = vec![1, 2, 3, 4];
        target.read_from(dest, &[segment(100)], 100, 1).unwrap();
        target.write(dest, &[segment(100)], &[7; 100], 2).unwrap();
        let both = [segment(50), segment(50)];
        target.write(dest, &both, &[7; 100], 3).unwrap();
        target.write(dest, &[segment(8)], &[7; 8], 4).unwrap();
        for (protocol, op) in [
            (Protocol::Direct, Op::Sum),
            (Protocol::Command, Op::AtomicRead),
        ] {
            let (dest, addr) = (dest, 0);
            RemoteWord {
                dest,
                addr,
                protocol,
            }
            .post(target, op, 1, None)
            .unwrap();
            contexts.push(7);
        }
        // The initiator sends the operations that it cannot execute to the owner, which does not
        // execute them.
        let written = forger.target_region.cmd_receiver();
        assert!(written.peek().is_some_and(|slot| slot.head() & 0xff == 2));
        drop(forger);
        for _ in contexts {
            while poll(target).is_none() {}
        }
        scenario.expect_traffic();
    });
}
