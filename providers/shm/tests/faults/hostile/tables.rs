//! Key tables that are not true: rows of memory that is not there, not theirs, or nowhere.

use std::os::fd::AsFd;

use selvedge::atomic::Op;
use selvedge::rma::RmaIov;
use selvedge_shm::smr::Writers;
use selvedge_shm::smr::keys::{Chunk, KeyEntry, Kind as Memory, RIGHT_READ, RIGHT_WRITE};
use selvedge_shm::smr::special::{Block, PageSize};

use super::{BLOCK, Intruder, Scene, packet};
use crate::atomics::{KEY, Place, Way, poll};
use crate::contact::unique;
use crate::process::alone;

/// Where the block lies that the liar hands over, as it says, and how long it is.
const BASE: u64 = 1 << 32;
const LEN: u64 = 8192;

fn rows() -> Vec<KeyEntry> {
    let sound = KeyEntry {
        key: KEY,
        start: 0,
        len: LEN,
        rights: RIGHT_READ | RIGHT_WRITE,
        kind: Memory::Special,
        memory: BASE,
        block: 1,
    };
    let mut rows = vec![sound];
    // Beside the block, across its ends, or at an odd place of it.
    for memory in [
        BASE - 8,
        BASE + 1,
        BASE + 8,
        BASE + LEN,
        0,
        u64::MAX,
        u64::MAX - 7,
    ] {
        rows.push(KeyEntry { memory, ..sound });
        let len = LEN / 2;
        rows.push(KeyEntry {
            memory,
            len,
            ..sound
        });
    }
    for len in [0, 7, LEN + 1, u64::MAX, u64::MAX - BASE] {
        rows.push(KeyEntry { len, ..sound });
    }
    for start in [u64::MAX, u64::MAX - 7, 8, u64::MAX - LEN] {
        rows.push(KeyEntry { start, ..sound });
        let len = u64::MAX;
        rows.push(KeyEntry {
            start,
            len,
            ..sound
        });
    }
    for block in [0, 2, u64::MAX] {
        rows.push(KeyEntry { block, ..sound });
    }
    for kind in [Memory::Plain, Memory::Whole] {
        for memory in [0, 8, BASE, u64::MAX - LEN, u64::MAX] {
            let len = u64::MAX - memory;
            rows.push(KeyEntry {
                kind,
                memory,
                len,
                ..sound
            });
        }
    }
    rows.push(KeyEntry {
        rights: u32::MAX,
        ..sound
    });
    rows
}

#[test]
fn rows_of_memory_that_is_not_there_end_operations_and_nothing_else() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let name = unique("mapmaker");
        let (_memory, fd) =
            Block::create(LEN as usize, Writers::AnyProcess, PageSize::Ordinary).unwrap();
        let mut block = packet(BLOCK);
        for word in [1, BASE, LEN] {
            block.extend(u64::to_le_bytes(word));
        }
        block.extend(1_u32.to_le_bytes());
        block.resize(256, 0);
        for row in rows() {
            let mut chunk = Chunk::create(0).unwrap();
            chunk.publish(KEY as usize, &row);
            let victim = &mut scene.victim;
            let liar = Intruder::enter_with_keys(victim, &name, &nonce, &chunk);
            liar.hostile.say(&block, &[fd.as_fd()]);
            (0..1000).for_each(|_| victim.drive());
            let dest = victim.insert(&name);
            let (mut posted, mut done) = (0_u64, 0);
            for addr in [0, 1, 8, LEN - 8, LEN, BASE, u64::MAX - 7, u64::MAX] {
                for len in [0, 8, 9, 4096, LEN as usize] {
                    let piece = RmaIov {
                        addr,
                        len,
                        key: KEY,
                    };
                    for pieces in [&[piece][..], &[piece; 2]] {
                        let total = len * pieces.len();
                        let (read, write) = (10_000 + posted, 10_001 + posted);
                        posted += u64::from(victim.read_from(dest, pieces, total, read).is_ok());
                        let bytes = vec![7; total];
                        posted += u64::from(victim.write(dest, pieces, &bytes, write).is_ok());
                    }
                }
                for way in [Way::Direct, Way::Command] {
                    let place = Place { dest, addr, way };
                    posted += u64::from(place.post(victim, Op::Sum, 1, None).is_ok());
                    posted += u64::from(place.post(victim, Op::AtomicRead, 1, None).is_ok());
                }
                while poll(victim).is_some() {
                    done += 1;
                }
            }
            drop(liar);
            // What it owed ends with it.
            while done < posted {
                done += u64::from(poll(victim).is_some());
            }
            (0..1000).for_each(|_| assert!(poll(victim).is_none(), "{row:?}"));
            assert!(posted > 0);
            scene.goes_on();
        }
    });
}

/// The packet that announces the block of a liar.
fn announced(len: u64, is_writable: bool) -> Vec<u8> {
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
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let (_memory, fd) =
            Block::create(LEN as usize, Writers::AnyProcess, PageSize::Ordinary).unwrap();
        let mut chunk = Chunk::create(0).unwrap();
        chunk.publish(KEY as usize, &rows()[0]);
        let (victim, name) = (&mut scene.victim, unique("reader"));
        let liar = Intruder::enter_with_keys(victim, &name, &nonce, &chunk);
        liar.hostile.say(&announced(LEN, false), &[fd.as_fd()]);
        (0..1000).for_each(|_| victim.drive());
        let dest = victim.insert(&name);
        let piece = |len| RmaIov {
            addr: 0,
            len,
            key: KEY,
        };
        let mut contexts = vec![1, 2, 3, 4];
        victim.read_from(dest, &[piece(100)], 100, 1).unwrap();
        victim.write(dest, &[piece(100)], &[7; 100], 2).unwrap();
        let both = [piece(50), piece(50)];
        victim.write(dest, &both, &[7; 100], 3).unwrap();
        victim.write(dest, &[piece(8)], &[7; 8], 4).unwrap();
        for (way, op) in [(Way::Direct, Op::Sum), (Way::Command, Op::AtomicRead)] {
            let (dest, addr) = (dest, 0);
            Place { dest, addr, way }.post(victim, op, 1, None).unwrap();
            contexts.push(7);
        }
        // What could not be done here was left to its owner, who does not do it.
        let written = liar.theirs.cmd_receiver();
        assert!(written.peek().is_some_and(|slot| slot.head() & 0xff == 2));
        drop(liar);
        for _ in contexts {
            while poll(victim).is_none() {}
        }
        scene.goes_on();
    });
}
