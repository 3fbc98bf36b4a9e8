//! `libselvedge_heap.so`: the shared heap for programs that are not compiled again (`LD_PRELOAD`).
//!
//! The library has the C library's functions of memory. Large allocations come from
//! [`selvedge_heap`], all others from the next library that has these functions ([`next`]), which
//! is usually the C library. An allocation goes back to where it came from, by its address.
//!
//! `selvedge_heap_v1` is the table by which the shm provider finds the heap.

#![expect(unsafe_code, reason = "functions that C calls")]

mod early;
mod functions;
mod next;

use std::ffi::{c_int, c_void};
use std::ptr;

use selvedge_heap::heap;
use selvedge_heap::table::{TABLE, Table};

use crate::functions::Functions;

/// The functions of the heap, for the shm provider.
#[unsafe(no_mangle)]
pub static selvedge_heap_v1: Table = Table {
    size: TABLE.size,
    changes: TABLE.changes,
    find: TABLE.find,
    descriptor: TABLE.descriptor,
    is_offered: TABLE.is_offered,
};

/// The alignment of every allocation: that of the C library.
const ALIGN: usize = align_of::<libc::max_align_t>();
/// The size of a page in bytes.
const PAGE: usize = 4096;

/// Keeps the value of `errno` over calls that succeed or do not fail: free(3) does not change it.
struct SavedErrno(c_int);

impl SavedErrno {
    fn save() -> Self {
        // SAFETY: the call has no conditions.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the address of this thread's `errno` is valid.
        Self(unsafe { errno.read() })
    }

    fn restore(self) {
        set_errno(self.0);
    }
}

fn set_errno(value: c_int) {
    // SAFETY: the call has no conditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address of this thread's `errno` is valid.
    unsafe { errno.write(value) };
}

/// Allocates from the heap. Returns null if the next library should allocate.
fn allocate(size: usize, align: usize) -> *mut c_void {
    let errno = SavedErrno::save();
    let allocated = heap::allocate(size, align);
    errno.restore();
    allocated.map_or(ptr::null_mut(), |allocated| allocated.ptr.as_ptr().cast())
}

/// Makes a large allocation of the next library. If it fails, memory that the heap keeps for later
/// is given back, and it is tried again.
fn allocate_next(allocate: impl Fn(&Functions) -> *mut c_void) -> *mut c_void {
    let functions = next::functions();
    let errno = SavedErrno::save();
    let mut allocated = allocate(functions);
    if allocated.is_null() && heap::release_unused() {
        allocated = allocate(functions);
    }
    if !allocated.is_null() {
        errno.restore();
    }
    allocated
}

/// malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(size: usize) -> *mut c_void {
    if heap::may_serve(size) {
        return malloc_large(size);
    }
    // SAFETY: the call has no conditions.
    unsafe { (next::functions().malloc)(size) }
}

#[cold]
extern "C" fn malloc_large(size: usize) -> *mut c_void {
    let large = allocate(size, ALIGN);
    if !large.is_null() {
        return large;
    }
    // SAFETY: the call has no conditions.
    allocate_next(|next| unsafe { (next.malloc)(size) })
}

/// calloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(total) if heap::may_serve(total) => calloc_large(count, size, total),
        // SAFETY: the call has no conditions.
        _ => unsafe { (next::functions().calloc)(count, size) },
    }
}

#[cold]
extern "C" fn calloc_large(count: usize, size: usize, total: usize) -> *mut c_void {
    let errno = SavedErrno::save();
    let allocated = heap::allocate(total, ALIGN);
    errno.restore();
    let Some(allocated) = allocated else {
        // SAFETY: the call has no conditions.
        return allocate_next(|next| unsafe { (next.calloc)(count, size) });
    };
    let ptr = allocated.ptr.as_ptr();
    // SAFETY: the allocation has at least that many bytes, and no other code has its address yet.
    unsafe { ptr.write_bytes(0, allocated.dirty) };
    ptr.cast()
}

/// free(3).
///
/// # Safety
/// As free(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(ptr: *mut c_void) {
    if heap::owns(ptr.cast()) {
        // SAFETY: the caller's promise.
        return unsafe { free_large(ptr) };
    }
    // SAFETY: the caller's promise; the memory is not the heap's.
    unsafe { (next::functions().free)(ptr) }
}

#[cold]
unsafe extern "C" fn free_large(ptr: *mut c_void) {
    let errno = SavedErrno::save();
    // SAFETY: the caller's promise; the heap recognizes its own allocations.
    unsafe { heap::free(ptr.cast()) };
    errno.restore();
}

/// realloc(3).
///
/// # Safety
/// As realloc(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    if heap::owns(ptr.cast()) || heap::may_serve(size) {
        // SAFETY: the caller's promise.
        return unsafe { realloc_large(ptr, size) };
    }
    // SAFETY: the caller's promise; the memory is not the heap's.
    unsafe { (next::functions().realloc)(ptr, size) }
}

/// [`realloc`] of memory of the heap, or to a length that the heap serves.
#[cold]
unsafe extern "C" fn realloc_large(ptr: *mut c_void, size: usize) -> *mut c_void {
    if ptr.is_null() {
        return malloc(size);
    }
    let is_own = heap::owns(ptr.cast());
    if is_own && size == 0 {
        // SAFETY: the caller's promise.
        unsafe { free(ptr) };
        return ptr::null_mut();
    }
    let errno = SavedErrno::save();
    let is_large = size >= heap::threshold();
    // SAFETY: the caller's promise; the heap recognizes its own allocations.
    let is_resized = is_own && is_large && unsafe { heap::resize(ptr.cast(), size) };
    errno.restore();
    if is_resized {
        return ptr;
    }
    let new = if is_own {
        malloc(size)
    } else {
        allocate(size, ALIGN)
    };
    if new.is_null() {
        return if is_own {
            new
        } else {
            // SAFETY: the caller's promise; the memory is not the heap's.
            allocate_next(|next| unsafe { (next.realloc)(ptr, size) })
        };
    }
    // SAFETY: the caller's promise.
    let len = unsafe { malloc_usable_size(ptr) }.min(size);
    // SAFETY: both allocations have at least `len` bytes, and they do not overlap.
    unsafe { ptr::copy_nonoverlapping(ptr.cast::<u8>(), new.cast::<u8>(), len) };
    // SAFETY: the caller's promise.
    unsafe { free(ptr) };
    new
}

/// reallocarray(3).
///
/// # Safety
/// As reallocarray(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(ptr: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(total) = count.checked_mul(size) else {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    };
    // SAFETY: the caller's promise.
    unsafe { realloc(ptr, total) }
}

/// posix_memalign(3).
///
/// # Safety
/// `result` is a pointer to a pointer that may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    size: usize,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<*mut c_void>()) {
        return libc::EINVAL;
    }
    let large = allocate_aligned(size, align);
    if large.is_null() {
        // SAFETY: the caller's promise.
        return unsafe { posix_memalign_next(result, align, size) };
    }
    // SAFETY: the caller's promise.
    unsafe { result.write(large) };
    0
}

/// [`allocate`], which is not called for small memory.
fn allocate_aligned(size: usize, align: usize) -> *mut c_void {
    if heap::may_serve(size) {
        allocate(size, align)
    } else {
        ptr::null_mut()
    }
}

/// As [`allocate_next`], for posix_memalign(3).
unsafe fn posix_memalign_next(result: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let functions = next::functions();
    // SAFETY: the caller's promise.
    let status = unsafe { (functions.posix_memalign)(result, align, size) };
    if status == libc::ENOMEM && heap::release_unused() {
        // SAFETY: the caller's promise.
        return unsafe { (functions.posix_memalign)(result, align, size) };
    }
    status
}

/// memalign(3). As in the C library, an alignment that is no power of two is rounded up.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    let large = match align.checked_next_power_of_two() {
        Some(align) => allocate_aligned(size, align),
        None => ptr::null_mut(),
    };
    if !large.is_null() {
        return large;
    }
    // SAFETY: the call has no conditions.
    allocate_next(|next| unsafe { (next.memalign)(align, size) })
}

/// aligned_alloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    memalign(align, size)
}

/// valloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn valloc(size: usize) -> *mut c_void {
    memalign(PAGE, size)
}

/// pvalloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(size: usize) -> *mut c_void {
    let Some(size) = size.max(1).checked_next_multiple_of(PAGE) else {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    };
    memalign(PAGE, size)
}

/// malloc_usable_size(3).
///
/// # Safety
/// As malloc_usable_size(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(ptr: *mut c_void) -> usize {
    if heap::owns(ptr.cast()) {
        heap::usable_size(ptr.cast()).unwrap_or(0)
    } else {
        // SAFETY: the caller's promise; the memory is not the heap's.
        unsafe { (next::functions().usable_size)(ptr) }
    }
}
