//! Key rows: nobody uses what it copied from memory whose row was withdrawn, and no row is read
//! half.

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

/// A row of which every field has the same number.
fn row(number: u64) -> KeyEntry {
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

/// A peer reads a row while it is published for the first time.
fn owner_publishes() {
    let (mut chunk, seen) = chunk();
    let owner = thread::spawn(move || {
        chunk.publish(0, &row(1));
        std::mem::forget(chunk);
    });
    let (copy, _) = wait(|| seen.read(0));
    assert_eq!(copy, row(1));
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

/// A peer reads a row while it is withdrawn and another one takes its place.
fn owner_replaces() {
    let (mut chunk, seen) = chunk();
    chunk.publish(0, &row(1));
    let owner = thread::spawn(move || {
        chunk.withdraw(0);
        chunk.publish(0, &row(2));
        std::mem::forget(chunk);
    });
    if let Some((copy, _)) = seen.read(0) {
        assert!(copy == row(1) || copy == row(2));
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

/// The owner takes memory back while a peer copies from it.
fn owner_takes_back(withdraw: fn(&mut Chunk)) {
    let (mut chunk, seen) = chunk();
    chunk.publish(0, &row(1));
    let memory = Arc::new(AtomicU64::new(BYTES));
    let named = Arc::clone(&memory);
    let (_, generation) = seen.read(0).unwrap();
    let owner = thread::spawn(move || {
        withdraw(&mut chunk);
        memory.store(REUSED, Ordering::Relaxed);
        std::mem::forget(chunk);
    });
    let copied = named.load(Ordering::Relaxed);
    if seen.is_current(0, generation) {
        assert_eq!(copied, BYTES);
    }
    owner.join().unwrap();
    assert!(!seen.is_current(0, generation) || copied == BYTES);
}

fn owner_withdraws() {
    owner_takes_back(|chunk| chunk.withdraw(0));
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
    assert!(fails(|| owner_takes_back(|_| ())));
}

/// A peer that was told of it by another way uses a row that its owner amends.
fn owner_amends(amend: fn(&mut Chunk)) {
    let (mut chunk, seen) = chunk();
    chunk.publish(0, &row(1));
    let told = Arc::new(AtomicU64::new(0));
    let tells = Arc::clone(&told);
    let (_, generation) = seen.read(0).unwrap();
    let owner = thread::spawn(move || {
        amend(&mut chunk);
        tells.store(1, Ordering::Release);
        std::mem::forget(chunk);
    });
    let (copy, later) = seen.read(0).expect("it counts all the time");
    assert_eq!((copy.key, copy.memory), (1, 1));
    // Whoever goes on with what it found before finds out by the generation.
    assert!(later == generation || copy.is_counted());
    if told.load(Ordering::Acquire) == 1 {
        assert!(!seen.version(0, generation).is_current());
        let (copy, _) = seen.read(0).expect("it counts all the time");
        assert!(copy.is_counted());
    }
    owner.join().unwrap();
}

fn counted() -> KeyEntry {
    KeyEntry {
        rights: RIGHT_READ | COUNTED,
        ..row(1)
    }
}

fn owner_says_that_it_counts() {
    owner_amends(|chunk| chunk.amend(0, &counted()));
}

#[test]
fn an_amended_key_entry_is_never_the_old_one_under_its_new_generation() {
    explore(owner_says_that_it_counts);
}

#[test]
fn amending_without_release_is_noticed() {
    assert!(catches(Fault::Commit, owner_says_that_it_counts));
}

#[test]
fn a_key_entry_withdrawn_to_be_amended_is_noticed() {
    assert!(fails(|| owner_amends(|chunk| {
        chunk.withdraw(0);
        chunk.publish(0, &counted());
    })));
}
