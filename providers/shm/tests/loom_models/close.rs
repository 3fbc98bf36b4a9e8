//! Closing: a peer never uses bytes that it copied from memory that the owner may have reused.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use selvedge_shm::smr::Region;
use selvedge_shm::smr::model::Fault;

use super::{attach_peer, catches, explore, fails, region};

const MESSAGE: u64 = 1;
const REUSED: u64 = 2;

/// The owner's memory that a command names. The peer copies from the memory without a call of the
/// owner.
type Buffer = Arc<[AtomicU64; 2]>;

fn buffer() -> Buffer {
    Arc::new([AtomicU64::new(MESSAGE), AtomicU64::new(MESSAGE)])
}

fn reuse(buffer: &Buffer) {
    buffer
        .iter()
        .for_each(|w| w.store(REUSED, Ordering::Relaxed));
}

fn copy(buffer: &Buffer) -> [u64; 2] {
    [0, 1].map(|word| buffer[word].load(Ordering::Relaxed))
}

/// The owner reuses a buffer while a peer copies from it.
fn owner_withdraws(withdraw: fn(Region)) {
    let (local, buffer) = (region(), buffer());
    let (peer_region, remote_buffer) = (attach_peer(&local), Arc::clone(&buffer));
    let owner = thread::spawn(move || {
        withdraw(local);
        reuse(&buffer);
    });
    let copied = copy(&remote_buffer);
    if !peer_region.is_closed() {
        assert_eq!(copied, [MESSAGE; 2]);
    }
    owner.join().unwrap();
    assert!(peer_region.is_closed() || copied == [MESSAGE; 2]);
}

fn owner_closes() {
    owner_withdraws(|region| region.close());
}

#[test]
fn a_copy_from_reused_memory_is_discarded() {
    explore(owner_closes);
}

#[test]
fn dropping_a_region_closes_it() {
    explore(|| owner_withdraws(drop));
}

#[test]
fn reuse_without_a_fence_behind_closing_is_noticed() {
    assert!(catches(Fault::Close, owner_closes));
}

#[test]
fn a_check_without_a_fence_before_it_is_noticed() {
    assert!(catches(Fault::Check, owner_closes));
}

#[test]
fn reuse_without_closing_is_noticed() {
    assert!(fails(|| owner_withdraws(std::mem::forget)));
}

/// An owner that is killed or stopped before it closes has reused no memory: copies are valid.
fn owner_ends_before_closing() {
    let (local, buffer) = (region(), buffer());
    let (peer_region, remote_buffer) = (attach_peer(&local), Arc::clone(&buffer));
    let owner = thread::spawn(move || {
        std::mem::forget((local, buffer));
    });
    assert_eq!(copy(&remote_buffer), [MESSAGE; 2]);
    assert!(!peer_region.is_closed());
    owner.join().unwrap();
    assert!(!peer_region.is_closed());
}

#[test]
fn copies_from_an_owner_that_ends_before_closing_are_valid() {
    explore(owner_ends_before_closing);
}

/// The owner is stopped between closing and reusing: the peer may discard copies, and no copy is
/// wrong.
fn owner_stops_after_closing() {
    let (local, buffer) = (region(), buffer());
    let (peer_region, remote_buffer) = (attach_peer(&local), Arc::clone(&buffer));
    let owner = thread::spawn(move || {
        local.close();
        std::mem::forget((local, buffer));
    });
    assert_eq!(copy(&remote_buffer), [MESSAGE; 2]);
    owner.join().unwrap();
    assert!(peer_region.is_closed());
}

#[test]
fn an_owner_that_stops_after_closing_is_closed() {
    explore(owner_stops_after_closing);
}
