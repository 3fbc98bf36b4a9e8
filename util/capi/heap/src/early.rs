//! Memory for allocations that are made while the functions of the next library are searched for.
//! It is never freed.

#![expect(unsafe_code, reason = "a static array that is handed out in parts")]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

const LEN: usize = 64 << 10;

#[repr(align(4096))]
struct Memory(UnsafeCell<[u8; LEN]>);

// SAFETY: each allocation is a range of its own, by the atomic counter `USED`.
unsafe impl Sync for Memory {}

static MEMORY: Memory = Memory(UnsafeCell::new([0; LEN]));
static USED: AtomicUsize = AtomicUsize::new(0);

/// Allocates zeroed memory that is never freed. The word before it has its length.
pub(crate) fn allocate(size: usize, align: usize) -> *mut c_void {
    let align = align.max(16);
    let Some(len) = size.checked_add(align + 16) else {
        return ptr::null_mut();
    };
    let len = len.next_multiple_of(16);
    let used = USED.fetch_add(len, Ordering::Relaxed);
    if used.saturating_add(len) > LEN {
        return ptr::null_mut();
    }
    let start = (used + 16).next_multiple_of(align);
    let ptr = MEMORY.0.get().cast::<u8>().wrapping_add(start);
    // SAFETY: the word is in the range of this allocation, in front of its bytes.
    unsafe { ptr.cast::<usize>().wrapping_sub(1).write(size) };
    ptr.cast()
}

/// The length of an early allocation; `None` for other memory.
pub(crate) fn len_of(ptr: *mut c_void) -> Option<usize> {
    let offset = ptr.addr().wrapping_sub(MEMORY.0.get().addr());
    // SAFETY: the word before an early allocation has its length.
    (offset < LEN).then(|| unsafe { ptr.cast::<usize>().wrapping_sub(1).read() })
}
