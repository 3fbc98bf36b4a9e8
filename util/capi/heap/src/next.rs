//! The allocator of the next library: its functions, found with dlsym(3).
//!
//! dlsym(3) may allocate while it is asked for them. Until all are known, allocations come from a
//! static array and are never freed.

#![expect(unsafe_code, reason = "functions of another library")]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The functions of the next library.
#[derive(Clone, Copy)]
struct Functions {
    malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    memalign: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    posix_memalign: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int,
    usable_size: unsafe extern "C" fn(*mut c_void) -> usize,
}

static FUNCTIONS: Found = Found {
    state: AtomicU8::new(UNKNOWN),
    functions: UnsafeCell::new(None),
};

/// The functions, after the first call has found them.
struct Found {
    state: AtomicU8,
    functions: UnsafeCell<Option<Functions>>,
}

// SAFETY: the functions are written once, by the thread that changes the state from `UNKNOWN`, and
// read only after that thread has set the state to `KNOWN` with release.
unsafe impl Sync for Found {}

const UNKNOWN: u8 = 0;
const SEARCHING: u8 = 1;
const KNOWN: u8 = 2;

impl Found {
    /// Returns the functions; `None` while a thread is searching for them.
    #[inline]
    fn get(&self) -> Option<&Functions> {
        if self.state.load(Ordering::Acquire) != KNOWN && !self.search() {
            return None;
        }
        // SAFETY: the state is `KNOWN`, so no thread writes the functions any more.
        unsafe { &*self.functions.get() }.as_ref()
    }

    /// Searches for the functions, unless a thread has begun to. Returns whether they are known.
    #[cold]
    fn search(&self) -> bool {
        let order = Ordering::Acquire;
        if let Err(state) = self
            .state
            .compare_exchange(UNKNOWN, SEARCHING, order, order)
        {
            return state == KNOWN;
        }
        let functions = Functions::find();
        // SAFETY: only the thread that set `SEARCHING` writes, and no thread reads before `KNOWN`.
        unsafe { *self.functions.get() = Some(functions) };
        self.state.store(KNOWN, Ordering::Release);
        true
    }
}

impl Functions {
    fn find() -> Self {
        Self {
            // SAFETY: the C library's function has this type.
            malloc: unsafe { find(c"malloc") },
            // SAFETY: as above.
            calloc: unsafe { find(c"calloc") },
            // SAFETY: as above.
            realloc: unsafe { find(c"realloc") },
            // SAFETY: as above.
            free: unsafe { find(c"free") },
            // SAFETY: as above.
            memalign: unsafe { find(c"memalign") },
            // SAFETY: as above.
            posix_memalign: unsafe { find(c"posix_memalign") },
            // SAFETY: as above.
            usable_size: unsafe { find(c"malloc_usable_size") },
        }
    }
}

/// Finds a function of the next library. Without it the program cannot run, and is aborted.
///
/// # Safety
/// `F` is a pointer to a function, and the function of this name has this type.
unsafe fn find<F: Copy>(name: &CStr) -> F {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the name ends with a zero byte.
    let symbol = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if symbol.is_null() {
        let line = b"selvedge heap: the next library has no function of memory\n";
        // SAFETY: the bytes are initialized.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
        // SAFETY: the call has no conditions.
        unsafe { libc::abort() };
    }
    // SAFETY: the symbol is the address of a function of type `F`, by the caller's promise, and a
    // pointer to a function has the size of an address.
    unsafe { (&raw const symbol).cast::<F>().read() }
}

const EARLY_LEN: usize = 64 << 10;

/// Memory for allocations before the functions are known.
#[repr(align(4096))]
struct Early(UnsafeCell<[u8; EARLY_LEN]>);

// SAFETY: each allocation is a range of its own, by the atomic counter `EARLY_USED`.
unsafe impl Sync for Early {}

static EARLY: Early = Early(UnsafeCell::new([0; EARLY_LEN]));
static EARLY_USED: AtomicUsize = AtomicUsize::new(0);

/// Allocates zeroed memory that is never freed. The word before it has its length.
fn allocate_early(size: usize, align: usize) -> *mut c_void {
    let align = align.max(16);
    let Some(len) = size.checked_add(align + 16) else {
        return ptr::null_mut();
    };
    let len = len.next_multiple_of(16);
    let used = EARLY_USED.fetch_add(len, Ordering::Relaxed);
    if used.saturating_add(len) > EARLY_LEN {
        return ptr::null_mut();
    }
    let start = (used + 16).next_multiple_of(align);
    let ptr = EARLY.0.get().cast::<u8>().wrapping_add(start);
    // SAFETY: the word is in the range of this allocation, in front of its bytes.
    unsafe { ptr.cast::<usize>().wrapping_sub(1).write(size) };
    ptr.cast()
}

/// The length of an early allocation; `None` for other memory.
fn early_len(ptr: *mut c_void) -> Option<usize> {
    let offset = ptr.addr().wrapping_sub(EARLY.0.get().addr());
    // SAFETY: the word before an early allocation has its length.
    (offset < EARLY_LEN).then(|| unsafe { ptr.cast::<usize>().wrapping_sub(1).read() })
}

/// malloc(3) of the next library.
#[inline]
pub(crate) fn malloc(size: usize) -> *mut c_void {
    match FUNCTIONS.get() {
        // SAFETY: the call has no conditions.
        Some(functions) => unsafe { (functions.malloc)(size) },
        None => allocate_early(size, 1),
    }
}

/// calloc(3) of the next library.
#[inline]
pub(crate) fn calloc(count: usize, size: usize) -> *mut c_void {
    match FUNCTIONS.get() {
        // SAFETY: the call has no conditions.
        Some(functions) => unsafe { (functions.calloc)(count, size) },
        None => allocate_early(count.saturating_mul(size), 1),
    }
}

/// memalign(3) of the next library.
pub(crate) fn memalign(align: usize, size: usize) -> *mut c_void {
    match FUNCTIONS.get() {
        // SAFETY: the call has no conditions.
        Some(functions) => unsafe { (functions.memalign)(align, size) },
        None if align <= 4096 && align.is_power_of_two() => allocate_early(size, align),
        None => ptr::null_mut(),
    }
}

/// posix_memalign(3) of the next library.
///
/// # Safety
/// As posix_memalign(3).
pub(crate) unsafe fn posix_memalign(result: *mut *mut c_void, align: usize, size: usize) -> c_int {
    if let Some(functions) = FUNCTIONS.get() {
        // SAFETY: the caller's promise.
        return unsafe { (functions.posix_memalign)(result, align, size) };
    }
    let ptr = memalign(align, size);
    if ptr.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { result.write(ptr) };
    0
}

/// free(3) of the next library.
///
/// # Safety
/// As free(3), for memory that is not the heap's.
#[inline]
pub(crate) unsafe fn free(ptr: *mut c_void) {
    if early_len(ptr).is_some() {
        return;
    }
    // Memory of the next library exists only after its functions are known.
    if let Some(functions) = FUNCTIONS.get() {
        // SAFETY: the caller's promise.
        unsafe { (functions.free)(ptr) };
    }
}

/// realloc(3) of the next library.
///
/// # Safety
/// As realloc(3), for memory that is not the heap's.
pub(crate) unsafe fn realloc(ptr: *mut c_void, size: usize) -> *mut c_void {
    match (early_len(ptr), FUNCTIONS.get()) {
        // SAFETY: the caller's promise.
        (None, Some(functions)) => unsafe { (functions.realloc)(ptr, size) },
        (None, None) => malloc(size),
        (Some(len), _) => {
            let new = malloc(size);
            if !new.is_null() {
                // SAFETY: both allocations have that many bytes, and they do not overlap.
                unsafe { ptr::copy_nonoverlapping(ptr.cast::<u8>(), new.cast(), len.min(size)) };
            }
            new
        }
    }
}

/// malloc_usable_size(3) of the next library.
///
/// # Safety
/// As malloc_usable_size(3), for memory that is not the heap's.
pub(crate) unsafe fn usable_size(ptr: *mut c_void) -> usize {
    match (early_len(ptr), FUNCTIONS.get()) {
        (Some(len), _) => len,
        // SAFETY: the caller's promise.
        (None, Some(functions)) => unsafe { (functions.usable_size)(ptr) },
        (None, None) => 0,
    }
}
