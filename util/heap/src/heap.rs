//! The heap of this process: the functions that the allocators call.
//!
//! Whether an address is the heap's is one load from a table ([`owns`]), because every call of
//! `free` asks. All else happens behind one lock.

#![expect(unsafe_code, reason = "the caller's promise about a pointer")]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use crate::arena::Arena;
use crate::arenas::{Arenas, CHANGES, HEAP, index_of};
use crate::config::Config;
use crate::fork;
use crate::system::{self, PAGE};

/// An allocation of the heap.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// The number of bytes from there that may not be zero. All other bytes are.
    pub dirty: usize,
}

/// The smallest allocation of the heap. Before the parameters are read, it is the smallest
/// permitted value.
static THRESHOLD: AtomicUsize = AtomicUsize::new(PAGE);

/// The progress of the preparation, which the first large allocation makes.
static PREPARED: AtomicU8 = AtomicU8::new(UNPREPARED);
const UNPREPARED: u8 = 0;
const PREPARING: u8 = 1;
const READY: u8 = 2;

/// Whether [`allocate`] may serve a size: it is not below the threshold.
#[inline]
pub fn may_serve(size: usize) -> bool {
    size >= THRESHOLD.load(Ordering::Relaxed)
}

/// Allocates at least `size` bytes, aligned to a page and to `align`. Returns `None` if another
/// allocator should do that: the size is below the threshold or above the limit, there is no
/// memory, or this thread is inside the heap already.
pub fn allocate(size: usize, align: usize) -> Option<Allocated> {
    if !may_serve(size) || !is_ready() || size < threshold() {
        return None;
    }
    let (address, dirty) = with(|heap| heap.allocate(size, align))??;
    let ptr = NonNull::new(ptr::with_exposed_provenance_mut(address))?;
    Some(Allocated { ptr, dirty })
}

/// Whether an address is in an arena of the heap.
#[inline]
pub fn owns(ptr: *const u8) -> bool {
    index_of(ptr.addr()).is_some()
}

/// Frees an allocation.
///
/// # Safety
/// - [`allocate`] has returned the pointer, and it was not freed since.
/// - Nothing accesses the memory any more.
pub unsafe fn free(ptr: *mut u8) {
    let address = ptr.addr();
    // A thread that is inside the heap already cannot free: the memory stays allocated.
    if with(|heap| heap.free(address)) == Some(false) {
        system::abort_invalid_pointer();
    }
}

/// Changes the length of an allocation in place. Returns `false` without effect if the memory
/// behind it is not free.
///
/// # Safety
/// - [`allocate`] has returned the pointer, and it was not freed since.
/// - Nothing accesses the memory beyond the new length any more.
pub unsafe fn resize(ptr: *mut u8, size: usize) -> bool {
    let address = ptr.addr();
    with(|heap| heap.resize(address, size)) == Some(true)
}

/// Returns the number of bytes that an allocation can hold. The process is aborted if there is no
/// allocation at the address; `None` if this thread is inside the heap already.
pub fn usable_size(ptr: *const u8) -> Option<usize> {
    let address = ptr.addr();
    match with(|heap| heap.usable_size(address))? {
        Some(len) => Some(len),
        None => system::abort_invalid_pointer(),
    }
}

/// Gives back the memory that the heap keeps for later allocations. Returns whether there was any:
/// an allocation that has failed may succeed then.
#[cold]
pub fn release_unused() -> bool {
    is_used() && with(Arenas::end_empty) == Some(true)
}

/// Returns the smallest allocation that the heap serves, in bytes.
pub fn threshold() -> usize {
    match PREPARED.load(Ordering::Acquire) {
        READY => THRESHOLD.load(Ordering::Relaxed),
        _ => Config::DEFAULT_THRESHOLD,
    }
}

/// Whether this process has used the heap.
pub(crate) fn is_used() -> bool {
    PREPARED.load(Ordering::Acquire) == READY
}

/// Returns how often an arena began or ceased to be offered.
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// Runs `action` with the arena in which all of the `len` bytes at `address` lie, if it is
/// offered.
pub(crate) fn find<R>(address: usize, len: usize, action: impl FnOnce(&Arena) -> R) -> Option<R> {
    let index = index_of(address)?;
    with(|heap| {
        let arena = heap.at(index).filter(|arena| arena.is_offered)?;
        let offset = address.checked_sub(arena.base)?;
        let end = offset.checked_add(len)?;
        (offset >= PAGE && end <= arena.committed_len()).then(|| action(arena))
    })?
}

/// Runs `action` with the offered arena that has a serial number.
pub(crate) fn find_serial<R>(serial: u64, action: impl FnOnce(&Arena) -> R) -> Option<R> {
    with(|heap| heap.with_serial(serial).map(action))?
}

/// Runs `action` with the heap. Returns `None` if this thread is inside the heap already.
fn with<R>(action: impl FnOnce(&mut Arenas) -> R) -> Option<R> {
    fork::check_process();
    HEAP.with(action)
}

/// Prepares the heap if no thread has begun to. Returns whether it is ready.
fn is_ready() -> bool {
    match PREPARED.load(Ordering::Acquire) {
        READY => true,
        PREPARING => false,
        _ => prepare(),
    }
}

/// Reads the parameters and installs the fork handlers. Both may allocate small memory: the lock is
/// not held, and other threads use the other allocator meanwhile.
#[cold]
fn prepare() -> bool {
    let order = Ordering::Acquire;
    if PREPARED
        .compare_exchange(UNPREPARED, PREPARING, order, order)
        .is_err()
    {
        return false;
    }
    let config = Config::read();
    if !fork::install() {
        // Without its handlers the heap would let parent and child share memory.
        return false;
    }
    let is_set = HEAP.with(|heap| heap.configure(config)).is_some();
    if is_set {
        THRESHOLD.store(config.threshold, Ordering::Relaxed);
        PREPARED.store(READY, Ordering::Release);
    }
    is_set
}
