//! `SharedHeap`: the heap as a `GlobalAlloc`.

#![expect(unsafe_code, reason = "the traits of allocators")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use crate::heap;

/// An allocator that serves large allocations from the shared heap, and all others from `A`.
///
/// # Examples
///
/// ```
/// use selvedge_heap::SharedHeap;
///
/// #[global_allocator]
/// static HEAP: SharedHeap = SharedHeap::new();
///
/// let large = vec![1_u8; 1 << 20];
/// assert!(selvedge_heap::heap::owns(large.as_ptr()));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedHeap<A = System> {
    next: A,
}

impl SharedHeap {
    /// The shared heap before the system's allocator.
    pub const fn new() -> Self {
        Self::before(System)
    }
}

impl<A> SharedHeap<A> {
    /// The shared heap before another allocator.
    pub const fn before(next: A) -> Self {
        Self { next }
    }
}

// SAFETY: an allocation is either one of `next`, which keeps the promises of the trait, or one of
// the heap: at least `size` bytes, aligned to a page and to `align`, which overlap no other
// allocation until it is freed. An allocation of the heap is recognized by its address, so it goes
// back to where it came from. Nothing here panics.
unsafe impl<A: GlobalAlloc> GlobalAlloc for SharedHeap<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match heap::allocate(layout.size(), layout.align()) {
            Some(allocated) => allocated.ptr.as_ptr(),
            // SAFETY: the caller's promise.
            None => unsafe { self.next.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(allocated) = heap::allocate(layout.size(), layout.align()) else {
            // SAFETY: the caller's promise.
            return unsafe { self.next.alloc_zeroed(layout) };
        };
        let ptr = allocated.ptr.as_ptr();
        // SAFETY: the allocation has at least that many bytes.
        unsafe { ptr.write_bytes(0, allocated.dirty) };
        ptr
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if heap::owns(ptr) {
            // SAFETY: the caller's promise; the heap recognizes its own allocations.
            unsafe { heap::free(ptr) }
        } else {
            // SAFETY: the caller's promise; all other allocations are `next`'s.
            unsafe { self.next.dealloc(ptr, layout) }
        }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let is_large = new_size >= heap::threshold();
        match (heap::owns(ptr), is_large) {
            // SAFETY: the caller's promise; the heap recognizes its own allocations.
            (true, true) if unsafe { heap::resize(ptr, new_size) } => return ptr,
            // SAFETY: the caller's promise; all other allocations are `next`'s.
            (false, false) => return unsafe { self.next.realloc(ptr, layout, new_size) },
            _ => {}
        }
        // SAFETY: the caller promises that the new size, rounded up to the alignment, is valid.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: the new size is not zero, by the caller's promise.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            let len = layout.size().min(new_size);
            // SAFETY: both allocations have at least `len` bytes, and they do not overlap.
            unsafe { ptr::copy_nonoverlapping(ptr, new, len) };
            // SAFETY: the caller's promise.
            unsafe { self.dealloc(ptr, layout) };
        }
        new
    }
}
