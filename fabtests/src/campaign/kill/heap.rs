//! The shared heap in the processes of some operations.
//!
//! The allocator of this program serves large allocations from the shared heap while it is switched
//! on. Elsewhere, messages come from ordinary memory and travel by the other protocols.

#![expect(
    unsafe_code,
    reason = "an allocator, and a child that writes to inherited memory"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use nix::sys::signal::{SigSet, Signal};
use selvedge_heap::{SharedHeap, heap};

use crate::campaign::endpoint::{BLANK, blank};
use crate::suite::context::fork::fork_child;

struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

static HEAP: SharedHeap = SharedHeap::new();
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Switches the heap on or off, for allocations from now on.
pub(super) fn switch(is_on: bool) {
    IS_ON.store(is_on, Ordering::Relaxed);
}

// SAFETY: an allocation is one of `HEAP` or of `System`. `HEAP` passes memory that is not its own
// on to `System`, so memory goes back to where it came from, whether or not the heap is on.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_ON.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise.
            return unsafe { HEAP.alloc(layout) };
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if IS_ON.load(Ordering::Relaxed) {
            // SAFETY: the caller's promise.
            return unsafe { HEAP.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { HEAP.dealloc(ptr, layout) };
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if IS_ON.load(Ordering::Relaxed) || heap::owns(ptr) {
            // SAFETY: the caller's promise.
            return unsafe { HEAP.realloc(ptr, layout, new_size) };
        }
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// The location of bytes of the heap that this process has sent, and that the endpoint frees after
/// the completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentBytes {
    first: *mut u8,
    len: usize,
}

impl SentBytes {
    /// The location of a message.
    ///
    /// # Errors
    /// The message is not in the heap.
    pub(super) fn of(message: &mut [u8]) -> anyhow::Result<Self> {
        let (first, len) = (message.as_mut_ptr(), message.len());
        ensure!(
            heap::owns(first),
            "a message of {len} bytes is not in the heap"
        );
        Ok(Self { first, len })
    }

    /// Forks a child that overwrites its copy of the bytes, and waits for its end.
    ///
    /// # Errors
    /// The process cannot be forked.
    pub(super) fn overwrite_in_child(self) -> anyhow::Result<()> {
        // A traced process would stop at the signal.
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGCHLD);
        signals.thread_block()?;
        let child = fork_child(|| {
            // SAFETY: the bytes are allocated until the completion, which the child does not
            // reach, and nothing else accesses the child's copy.
            unsafe { self.first.write_bytes(BLANK, self.len) };
            true
        })?;
        // A breakpoint of the campaign ends the child as well; that is no failure of this process.
        let _ = child.stop();
        Ok(())
    }

    /// Overwrites the bytes, which are free, by an allocation in their place, and lets the heap
    /// give back its file.
    ///
    /// # Errors
    /// The bytes are not free.
    pub(super) fn overwrite_after_free(self) -> anyhow::Result<()> {
        let other = std::hint::black_box(blank(self.len));
        ensure!(
            std::ptr::eq(other.as_ptr(), self.first),
            "{} bytes are not free after their message has ended",
            self.len
        );
        drop(other);
        ensure!(
            heap::release_unused(),
            "the heap has an allocation that does not belong to the message"
        );
        Ok(())
    }
}
