//! `Functions`: the functions of memory of a library, and those of the next one, found with
//! dlsym(3).

#![expect(unsafe_code, reason = "functions of another library")]

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

/// The functions of memory of a library.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) malloc: unsafe extern "C" fn(usize) -> *mut c_void,
    pub(crate) calloc: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub(crate) realloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    pub(crate) free: unsafe extern "C" fn(*mut c_void),
    pub(crate) memalign: unsafe extern "C" fn(usize, usize) -> *mut c_void,
    pub(crate) posix_memalign: unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int,
    pub(crate) usable_size: unsafe extern "C" fn(*mut c_void) -> usize,
}

/// The functions of the next library.
pub(crate) static NEXT: Found = Found {
    state: AtomicU8::new(UNKNOWN),
    functions: UnsafeCell::new(None),
};

/// Functions that the first call finds.
pub(crate) struct Found {
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
    pub(crate) fn get(&self) -> Option<&Functions> {
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
