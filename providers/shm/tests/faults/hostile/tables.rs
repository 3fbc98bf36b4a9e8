//! Key tables that are not true: rows of memory that is not there, not theirs, or nowhere.

use std::os::fd::AsFd;

use selvedge::atomic::Op;
use selvedge::rma::RmaIov;
use selvedge_shm::smr::Writers;
use selvedge_shm::smr::keys::{Chunk, Kind as Memory, RIGHT_READ, RIGHT_WRITE, Row};
use selvedge_shm::smr::special::{Block, PageSize};

use super::{BLOCK, Intruder, Scene, packet};
use crate::atomics::{KEY, Place, Way, poll};
use crate::contact::unique;
use crate::process::alone;

/// Where the block lies that the liar hands over, as it says, and how long it is.
const BASE: u64 = 1 << 32;
const LEN: u64 = 8192;

fn rows() -> Vec<Row> {
    let sound = Row {
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
        rows.push(Row { memory, ..sound });
        let len = LEN / 2;
        rows.push(Row {
            memory,
            len,
            ..sound
        });
    }
    for len in [0, 7, LEN + 1, u64::MAX, u64::MAX - BASE] {
        rows.push(Row { len, ..sound });
    }
    for start in [u64::MAX, u64::MAX - 7, 8, u64::MAX - LEN] {
        rows.push(Row { start, ..sound });
        let len = u64::MAX;
        rows.push(Row {
            start,
            len,
            ..sound
        });
    }
    for block in [0, 2, u64::MAX] {
        rows.push(Row { block, ..sound });
    }
    for kind in [Memory::Plain, Memory::Whole] {
        for memory in [0, 8, BASE, u64::MAX - LEN, u64::MAX] {
            let len = u64::MAX - memory;
            rows.push(Row {
                kind,
                memory,
                len,
                ..sound
            });
        }
    }
    rows.push(Row {
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
            Block::create(LEN as usize, Writers::Anybody, PageSize::Ordinary).unwrap();
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
