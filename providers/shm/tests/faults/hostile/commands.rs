//! Random commands, credits and responses, and endless commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::{Errno, FiAddr, IovMut, MemoryRegion, MrAccess, mr};
use selvedge_shm::smr::doorbell::Bell;
use selvedge_shm::smr::resp_queue::Resp;
use selvedge_testkit::usage::{Usage, private_after_trim};

use super::{HostilePeer, Scenario, packet};
use crate::connect::unique;
use crate::endpoint::{ANY, Kind, NumberedEndpoint};
use crate::peer_failure::Random;
use crate::process::alone;

impl HostilePeer {
    /// Takes one random step of a peer. Most steps are valid.
    fn take_random_step(&mut self, random: &mut Random, memory: &[u8]) {
        match random.below(1000) {
            0..600 => self.send_random_command(random, memory),
            600..850 => self.send_random_one_sided(random, memory),
            850..860 => self.resp.push(Resp {
                msg_id: random.below(8) as u32 | (random.below(3) as u32) << 16,
                status: random.below(6) as u32,
            }),
            860..862 => self.region.credit().publish(random.below(4)),
            862..960 => self.send_segment(random),
            960..980 => self.bell.iter().for_each(Bell::ring),
            980..982 => self.hostile.send(&random_packet(random), &[]),
            _ => self.region.set_polled(random.below(2) == 0),
        }
    }

    fn send_random_command(&mut self, random: &mut Random, memory: &[u8]) {
        // Treats every command as consumed by the target.
        let _ = self.tx.refresh(self.tx.position());
        let op_src = [0, 0, 0, 1, 1, 2][random.below(6) as usize];
        let flags = [0, 1, 2, 3][random.below(4) as usize];
        let mut head = random.below(2) as u32 | op_src << 8 | flags << 16;
        head |= (random.below(41) as u32) << 24;
        let is_wrong = random.below(300) == 0;
        if is_wrong {
            head ^= 1 << random.below(32);
        }
        let Some(mut slot) = self.tx.claim() else {
            return;
        };
        for word in 1..8 {
            slot.put(word, random.word() >> random.below(64));
        }
        if op_src == 1 {
            let len = random.below(5000);
            let offset = self.cursor.advance(len as usize).unwrap() as u64;
            slot.put(3, len);
            slot.put(4, if is_wrong { random.word() } else { offset });
        }
        if op_src == 2 {
            let (len, id) = (random.below(1 << 17), self.next_id);
            self.next_id += random.below(20).min(1);
            slot.put(3, len);
            slot.put(4, id | 1 << 32);
            slot.put(
                5,
                memory.as_ptr().expose_provenance() as u64 + random.below(2),
            );
            slot.put(6, random.below(10));
        }
        slot.commit(head);
    }

    /// A read, a write, a result or a notification, most of them with the target's key.
    fn send_random_one_sided(&mut self, random: &mut Random, memory: &[u8]) {
        let _ = self.tx.refresh(self.tx.position());
        let Some(mut slot) = self.tx.claim() else {
            return;
        };
        // The target takes no further command once there is no room for the response to a read.
        let op = match random.below(1000) {
            0..4 => 3,
            4..8 => 7,
            8..200 => 8,
            _ => 2,
        };
        let is_wrong = random.below(300) == 0;
        let op_src = if op == 2 { random.below(3) as u32 } else { 0 };
        let key = [KEY, KEY, KEY, 9, random.word()][random.below(5) as usize];
        let addr = [0, 1, 4000, 4096, random.word()][random.below(5) as usize];
        let len = [8, 100, 3000, random.below(1 << 13)][random.below(4) as usize];
        slot.put(1, if op == 8 { random.below(2) } else { key });
        slot.put(2, addr);
        (3..8).for_each(|word| slot.put(word, random.word() >> random.below(64)));
        match (op, op_src) {
            (2, 1) => {
                slot.put(4, len);
                slot.put(5, self.cursor.advance(len as usize).unwrap() as u64);
            }
            (2, 2) => {
                let offset = self.cursor.advance(24).unwrap();
                let source = memory.as_ptr().expose_provenance() as u64;
                let iov = [source, len, 0].map(u64::to_le_bytes);
                let pool = self.region.inject_pool();
                pool.bytes().copy_in(offset, iov.as_flattened());
                slot.put(4, len);
                slot.put(5, offset as u64);
                slot.put(6, self.next_id | 1 << 32);
                slot.put(7, random.below(10));
                self.next_id += random.below(20).min(1);
            }
            (3 | 8, _) => slot.put(3, len),
            _ => {}
        }
        let flags = if op == 2 { random.below(4) as u32 } else { 0 };
        let inline = if op_src == 0 && op == 2 {
            random.below(33) as u32
        } else {
            0
        };
        let mut head = op | op_src << 8 | flags << 16 | inline << 24;
        if is_wrong {
            head ^= 1 << random.below(32);
        }
        slot.commit(head);
    }
}

#[test]
fn peers_are_cut_off_while_others_are_polled() {
    alone(|| {
        let nonce = Box::new(9_u64);
        let (mut target, mut other) = (NumberedEndpoint::new(), NumberedEndpoint::new());
        let mut hostile_peer = HostilePeer::connect(&mut target, &unique("first"), 5, &nonce);
        let to_target = other.insert(target.name());
        other.send(Kind::Delivered, to_target, 8, 1).unwrap();
        target.recv(Kind::Delivered, FiAddr::UNSPEC, 8, 1).unwrap();
        other.next_with(&mut [&mut target]).ok();
        target.next().ok();
        hostile_peer.tx.claim().unwrap().commit(u32::MAX);
        hostile_peer.hostile.expect_cut_off_by(&mut target);
        let mut scenario = Scenario {
            target,
            other,
            to_target,
            number: 1,
        };
        scenario.expect_traffic();
    });
}

#[test]
fn empty_unexpected_messages_are_bounded() {
    alone(|| {
        let params = [("FI_SHM_UNEXPECTED_SIZE", "64k")];
        let (mut target, nonce) = (
            NumberedEndpoint::with_params(None, &params),
            Box::new(9_u64),
        );
        let mut hostile_peer = HostilePeer::connect(&mut target, &unique("flood"), 5, &nonce);
        let before = private_after_trim().unwrap();
        for _ in 0..200_000 {
            let _ = hostile_peer.tx.refresh(hostile_peer.tx.position());
            if let Some(mut slot) = hostile_peer.tx.claim() {
                slot.put(1, 77);
                slot.commit(1);
            }
            target.drive();
        }
        assert!(
            private_after_trim().unwrap() < before + (4 << 20),
            "{before} grew to {}",
            private_after_trim().unwrap()
        );
    });
}

/// A packet with a valid header and random bytes.
fn random_packet(random: &mut Random) -> Vec<u8> {
    let mut bytes = packet(random.below(6) as u32);
    bytes.extend((0..60).map(|_| random.word() as u8));
    bytes
}

/// Incarnations of hostile peers.
const INCARNATIONS: u128 = 200;

#[test]
fn random_commands_disturb_no_other_peer_and_leak_nothing() {
    alone(|| {
        let mut random = Random::seeded();
        let mut scenario = Scenario::new();
        let nonce = Box::new(0x5eed_u64);
        let memory = vec![7; 1 << 17];
        let guarded_region = guarded_region(&scenario.target);
        let name = unique("hostile_peer");
        let mut baseline = None;
        let mut cut_off = 0;
        for incarnation in 0..INCARNATIONS {
            let mut hostile_peer =
                HostilePeer::connect(&mut scenario.target, &name, incarnation, &nonce);
            let peer_addr = scenario.target.insert(&name);
            for round in 0..random.below(2000) {
                hostile_peer.take_random_step(&mut random, &memory);
                if round % 8 == 0 {
                    let _ = scenario
                        .target
                        .recv(Kind::Tagged, peer_addr, 3000, ANY - 1 - round);
                    let _ = scenario
                        .target
                        .send(Kind::Tagged, peer_addr, 3000, ANY - 1 - round);
                }
                scenario.target.drive();
            }
            cut_off += u32::from(hostile_peer.hostile.receive().is_none());
            scenario.expect_traffic();
            drop(hostile_peer);
            drain_disconnected_peer(&mut scenario.target, peer_addr);
            if incarnation == 50 {
                baseline = Some((Usage::now().unwrap(), private_after_trim().unwrap()));
            }
        }
        println!("{cut_off} of {INCARNATIONS} were cut off");
        assert!(
            guarded_region.is_whole(),
            "bytes outside of the region were written"
        );
        assert!(
            guarded_region.was_written(),
            "no command has written to the region"
        );
        let (usage_before, memory) = baseline.unwrap();
        assert_eq!(Usage::now().unwrap(), usage_before);
        assert!(
            private_after_trim().unwrap() < memory + (4 << 20),
            "{memory} grew to {}",
            private_after_trim().unwrap()
        );
        assert!(cut_off > 0);
    });
}

/// The key of the target's memory.
pub(super) const KEY: u64 = 3;

/// Registered memory of 4096 bytes, between unregistered bytes on both sides.
pub(super) struct GuardedRegion {
    pages: &'static [AtomicU64],
    _region: Arc<dyn MemoryRegion>,
}

#[expect(unsafe_code, reason = "registers memory that is never freed")]
pub(super) fn guarded_region(target: &NumberedEndpoint) -> GuardedRegion {
    let pages: &'static [AtomicU64] = (0..3 * 512)
        .map(|_| 0xabcd.into())
        .collect::<Vec<_>>()
        .leak();
    let first = pages[512].as_ptr();
    let mut attr = mr::Attr::default();
    attr.access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    attr.requested_key = KEY;
    let memory = IovMut::from_raw(first.cast(), 4096);
    // SAFETY: never freed, and accessed by atomics alone.
    let region = unsafe { target.domain().reg(&[memory], &attr) };
    GuardedRegion {
        pages,
        _region: region.unwrap(),
    }
}

impl GuardedRegion {
    fn is_whole(&self) -> bool {
        let mut outside = self.pages[..512].iter().chain(&self.pages[1024..]);
        outside.all(|word| word.load(Ordering::Relaxed) == 0xabcd)
    }

    /// Whether a word at the beginning, in the middle and at the end was changed.
    fn was_written(&self) -> bool {
        let mut words = [512, 512 + 64, 1024 - 12]
            .map(|word| &self.pages[word])
            .into_iter();
        words.all(|word| word.load(Ordering::Relaxed) != 0xabcd)
    }
}

/// Receives the messages of a disconnected peer, and drops the failed completions.
fn drain_disconnected_peer(target: &mut NumberedEndpoint, peer_addr: FiAddr) {
    target.until(|target| target.send(Kind::Inject, peer_addr, 1, 0) == Err(Errno::NotConn));
    for kind in [Kind::Msg, Kind::Tagged] {
        target.until(|target| match target.recv(kind, peer_addr, 3000, ANY) {
            Ok(()) => {
                let _ = target.next();
                false
            }
            Err(errno) => errno == Errno::NotConn,
        });
    }
    target.clear();
    assert!(target.is_idle());
}
