//! The allocator of the next library, as one table of functions.
//!
//! The table in force is [`FIRST`] until the first call has found the functions of the next
//! library, and these functions afterwards: a call costs a load and an indirect jump. dlsym(3) may
//! allocate while it is asked for the functions, and other threads may allocate meanwhile. Such
//! allocations come from a static array, and [`PINNED`], which recognizes them, stays in force.

#![expect(unsafe_code, reason = "functions of another library")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::early;
use crate::functions::{Functions, NEXT};

const SLOW: Functions = Functions {
    malloc: slow_malloc,
    calloc: slow_calloc,
    realloc: slow_realloc,
    free: slow_free,
    memalign: slow_memalign,
    posix_memalign: slow_posix_memalign,
    usable_size: slow_usable_size,
};

/// The table until the functions are known.
static FIRST: Functions = SLOW;
/// The table for good, after an allocation from the static array.
static PINNED: Functions = SLOW;
static IN_FORCE: AtomicPtr<Functions> = AtomicPtr::new((&raw const FIRST).cast_mut());

/// The functions of the next library.
#[inline]
pub(crate) fn functions() -> &'static Functions {
    // SAFETY: `FIRST`, `PINNED` or the functions in `NEXT`, which are not changed once they are
    // known. Acquire pairs with the release of the thread that found them.
    unsafe { &*IN_FORCE.load(Ordering::Acquire) }
}

/// Returns the functions of the next library, and puts them in force; `None` while a thread is
/// searching for them.
fn find() -> Option<&'static Functions> {
    let found = NEXT.get()?;
    let first = (&raw const FIRST).cast_mut();
    if IN_FORCE.load(Ordering::Relaxed) == first {
        let found = ptr::from_ref(found).cast_mut();
        // A failure means that another thread was faster, or that the table is pinned.
        let _ = IN_FORCE.compare_exchange(first, found, Ordering::Release, Ordering::Relaxed);
    }
    Some(found)
}

/// Allocates from the static array. A thread that frees the memory has it from this one, and uses
/// [`PINNED`] therefore.
fn allocate_early(size: usize, align: usize) -> *mut c_void {
    IN_FORCE.store((&raw const PINNED).cast_mut(), Ordering::Release);
    early::allocate(size, align)
}

unsafe extern "C" fn slow_malloc(size: usize) -> *mut c_void {
    match find() {
        // SAFETY: the call has no conditions.
        Some(next) => unsafe { (next.malloc)(size) },
        None => allocate_early(size, 1),
    }
}

unsafe extern "C" fn slow_calloc(count: usize, size: usize) -> *mut c_void {
    match find() {
        // SAFETY: the call has no conditions.
        Some(next) => unsafe { (next.calloc)(count, size) },
        None => allocate_early(count.saturating_mul(size), 1),
    }
}

unsafe extern "C" fn slow_memalign(align: usize, size: usize) -> *mut c_void {
    match find() {
        // SAFETY: the call has no conditions.
        Some(next) => unsafe { (next.memalign)(align, size) },
        None if align <= 4096 && align.is_power_of_two() => allocate_early(size, align),
        None => ptr::null_mut(),
    }
}

unsafe extern "C" fn slow_posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    if let Some(next) = find() {
        // SAFETY: the caller's promise.
        return unsafe { (next.posix_memalign)(result, align, size) };
    }
    // SAFETY: the call has no conditions.
    let ptr = unsafe { slow_memalign(align, size) };
    if ptr.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { result.write(ptr) };
    0
}

unsafe extern "C" fn slow_free(ptr: *mut c_void) {
    if early::len_of(ptr).is_some() {
        return;
    }
    // Memory of the next library exists only after its functions are known.
    if let Some(next) = find() {
        // SAFETY: the caller's promise.
        unsafe { (next.free)(ptr) };
    }
}

unsafe extern "C" fn slow_realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    let Some(len) = early::len_of(ptr) else {
        return match find() {
            // SAFETY: the caller's promise.
            Some(next) => unsafe { (next.realloc)(ptr, size) },
            None => allocate_early(size, 1),
        };
    };
    // SAFETY: the call has no conditions.
    let new = unsafe { slow_malloc(size) };
    if !new.is_null() {
        // SAFETY: both allocations have that many bytes, and they do not overlap.
        unsafe { ptr::copy_nonoverlapping(ptr.cast::<u8>(), new.cast(), len.min(size)) };
    }
    new
}

unsafe extern "C" fn slow_usable_size(ptr: *mut c_void) -> usize {
    match (early::len_of(ptr), find()) {
        (Some(len), _) => len,
        // SAFETY: the caller's promise.
        (None, Some(next)) => unsafe { (next.usable_size)(ptr) },
        (None, None) => 0,
    }
}
