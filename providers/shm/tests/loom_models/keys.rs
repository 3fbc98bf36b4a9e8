//! Key entries: no peer uses bytes that it copied from memory whose entry was withdrawn, and no
//! entry is read in part.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use selvedge_shm::smr::keys::{COUNTED, Chunk, KeyEntry, Kind, PeerChunk, RIGHT_READ};
use selvedge_shm::smr::model::Fault;

use super::{catches, explore, fails, wait};

const BYTES: u64 = 1;
const REUSED: u64 = 2;

fn chunk() -> (Chunk, PeerChunk) {
    let chunk = Chunk::create(0).unwrap();
    let fd = chunk.memory().fd().try_clone_to_owned().unwrap();
    (chunk, PeerChunk::attach(fd, 0).unwrap())
}

/// Returns an entry whose fields all have the same number.
fn entry(number: u64) -> KeyEntry {
    KeyEntry {
        key: number,
        start: number,
        len: number,
        rights: RIGHT_READ,
        kind: Kind::Plain,
        memory: number,
        block: number,
    }
}

/// A peer reads an entry while it is published for the first time.
fn owner_publishes() {
    let (mut chunk, peer_chunk) = chunk();
    let owner = thread::spawn(move || {
        chunk.publish(0, &entry(1));
        std::mem::forget(chunk);
    });
    let (copy, _) = wait(|| peer_chunk.read(0));
    assert_eq!(copy, entry(1));
    owner.join().unwrap();
}

#[test]
fn a_key_entry_is_published_whole() {
    explore(owner_publishes);
}

#[test]
fn publishing_without_release_is_noticed() {
    assert!(catches(Fault::Commit, owner_publishes));
}

/// A peer reads an entry while it is withdrawn and replaced by another.
fn owner_replaces() {
    let (mut chunk, peer_chunk) = chunk();
    chunk.publish(0, &entry(1));
    let owner = thread::spawn(move || {
        chunk.withdraw(0);
        chunk.publish(0, &entry(2));
        std::mem::forget(chunk);
    });
    if let Some((copy, _)) = peer_chunk.read(0) {
        assert!(copy == entry(1) || copy == entry(2));
    }
    owner.join().unwrap();
}

#[test]
fn a_replaced_key_entry_is_the_old_one_or_the_new_one() {
    explore(owner_replaces);
}

#[test]
fn replacing_without_a_fence_behind_withdrawal_is_noticed() {
    assert!(catches(Fault::Close, owner_replaces));
}

#[test]
fn reading_a_key_entry_without_a_fence_before_the_second_load_is_noticed() {
    assert!(catches(Fault::Check, owner_replaces));
}

/// The owner withdraws an entry and reuses the memory while a peer copies from it.
fn owner_withdraws_while_peer_copies(withdraw: fn(&mut Chunk)) {
    let (mut chunk, peer_chunk) = chunk();
    chunk.publish(0, &entry(1));
    let memory = Arc::new(AtomicU64::new(BYTES));
    let peer_memory = Arc::clone(&memory);
    let (_, generation) = peer_chunk.read(0).unwrap();
    let owner = thread::spawn(move || {
        withdraw(&mut chunk);
        memory.store(REUSED, Ordering::Relaxed);
        std::mem::forget(chunk);
    });
    let copied = peer_memory.load(Ordering::Relaxed);
    if peer_chunk.is_current(0, generation) {
        assert_eq!(copied, BYTES);
    }
    owner.join().unwrap();
    assert!(!peer_chunk.is_current(0, generation) || copied == BYTES);
}

fn owner_withdraws() {
    owner_withdraws_while_peer_copies(|chunk| chunk.withdraw(0));
}

#[test]
fn a_copy_from_withdrawn_memory_is_discarded() {
    explore(owner_withdraws);
}

#[test]
fn reuse_without_a_fence_behind_withdrawal_is_noticed() {
    assert!(catches(Fault::Close, owner_withdraws));
}

#[test]
fn a_validity_check_without_a_fence_before_it_is_noticed() {
    assert!(catches(Fault::Check, owner_withdraws));
}

#[test]
fn reuse_without_withdrawal_is_noticed() {
    assert!(fails(|| owner_withdraws_while_peer_copies(|_| ())));
}

/// A peer uses an entry that its owner amends. Another word tells the peer that the entry is
/// amended.
fn owner_amends(amend: fn(&mut Chunk)) {
    let (mut chunk, peer_chunk) = chunk();
    chunk.publish(0, &entry(1));
    let is_amended = Arc::new(AtomicU64::new(0));
    let amended = Arc::clone(&is_amended);
    let (_, generation) = peer_chunk.read(0).unwrap();
    let owner = thread::spawn(move || {
        amend(&mut chunk);
        amended.store(1, Ordering::Release);
        std::mem::forget(chunk);
    });
    let (copy, later) = peer_chunk.read(0).expect("the entry is valid all the time");
    assert_eq!((copy.key, copy.memory), (1, 1));
    // A peer that uses its earlier copy of the entry detects the change by the generation.
    assert!(later == generation || copy.is_counted());
    if is_amended.load(Ordering::Acquire) == 1 {
        assert!(!peer_chunk.version(0, generation).is_current());
        let (copy, _) = peer_chunk.read(0).expect("the entry is valid all the time");
        assert!(copy.is_counted());
    }
    owner.join().unwrap();
}

fn counted() -> KeyEntry {
    KeyEntry {
        rights: RIGHT_READ | COUNTED,
        ..entry(1)
    }
}

fn owner_marks_entry_counted() {
    owner_amends(|chunk| chunk.amend(0, &counted()));
}

#[test]
fn an_amended_key_entry_is_never_the_old_one_under_its_new_generation() {
    explore(owner_marks_entry_counted);
}

#[test]
fn amending_without_release_is_noticed() {
    assert!(catches(Fault::Commit, owner_marks_entry_counted));
}

#[test]
fn a_key_entry_withdrawn_to_be_amended_is_noticed() {
    assert!(fails(|| owner_amends(|chunk| {
        chunk.withdraw(0);
        chunk.publish(0, &counted());
    })));
}
