//! The interface between the heap and the shm provider.
//!
//! The heap may be in the program (as its `GlobalAlloc`) or in `libselvedge_heap.so`, and the
//! provider in the program or in another library. `libselvedge_heap.so` exports a [`Table`] of
//! functions under the name `selvedge_heap_v1`. [`Client`] uses the program's own heap, or else
//! that table.
//!
//! No function pins memory: a provider asks only for bytes of operations that the program has
//! posted, and the program frees no such bytes before the completion.

#![expect(unsafe_code, reason = "functions of another library")]

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use crate::arena::Arena;
use crate::heap;

pub use crate::arena::OFFERED;

/// The location of an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Location {
    /// The number of the arena, which no other arena of this process has or had.
    pub serial: u64,
    /// The address of the first byte.
    pub base: u64,
    /// The length in bytes.
    pub len: u64,
}

/// The functions of a heap, in C's layout.
#[derive(Debug)]
#[repr(C)]
pub struct Table {
    /// The size of this structure in bytes. A later version may be longer.
    pub size: u64,
    /// Returns how often an arena began or ceased to be offered.
    pub changes: extern "C" fn() -> u64,
    /// Finds the offered arena in which the `len` bytes at an address lie. Returns 1 and stores
    /// its location, or 0.
    pub find: extern "C" fn(address: u64, len: u64, location: *mut Location) -> i32,
    /// Returns a new descriptor of an offered arena, or -1.
    pub descriptor: extern "C" fn(serial: u64) -> i32,
    /// Returns 1 if an arena is offered, and otherwise 0.
    pub is_offered: extern "C" fn(serial: u64) -> i32,
}

/// The table of the heap in this library or program.
pub static TABLE: Table = Table {
    size: size_of::<Table>() as u64,
    changes: table_changes,
    find: table_find,
    descriptor: table_descriptor,
    is_offered: table_is_offered,
};

impl Location {
    fn of(arena: &Arena) -> Self {
        Self {
            serial: arena.serial,
            base: arena.base as u64,
            len: arena.len as u64,
        }
    }
}

extern "C" fn table_changes() -> u64 {
    heap::changes()
}

extern "C" fn table_find(address: u64, len: u64, location: *mut Location) -> i32 {
    let Some(found) = heap::find(address as usize, len as usize, Location::of) else {
        return 0;
    };
    // SAFETY: the caller passes a pointer to a location of its own.
    unsafe { location.write(found) };
    1
}

extern "C" fn table_descriptor(serial: u64) -> i32 {
    let found = heap::find_serial(serial, Arena::descriptor).flatten();
    found.map_or(-1, IntoRawFd::into_raw_fd)
}

extern "C" fn table_is_offered(serial: u64) -> i32 {
    i32::from(heap::find_serial(serial, |_| ()).is_some())
}

/// A provider's access to the heap of the process.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The heap of `libselvedge_heap.so`, if it is loaded.
    preloaded: Option<&'static Table>,
}

impl Client {
    /// Looks for a heap of `libselvedge_heap.so`.
    pub fn new() -> Self {
        // SAFETY: the name ends with a zero byte.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"selvedge_heap_v1".as_ptr()) };
        // SAFETY: only `libselvedge_heap.so` exports the name, for a table of this layout (the
        // digit in the name is its version) that is never unloaded.
        let preloaded = unsafe { symbol.cast::<Table>().as_ref() };
        Self { preloaded }
    }

    /// The heap in use: the program's own, or else that of `libselvedge_heap.so`.
    #[inline]
    fn table(&self) -> Option<&'static Table> {
        if heap::is_used() {
            Some(&TABLE)
        } else {
            self.preloaded
        }
    }

    /// Returns a number that grows when an arena begins or ceases to be offered; 0 without a heap.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.table().map_or(0, |table| (table.changes)())
    }

    /// Finds the offered arena in which all of the `len` bytes at an address lie.
    pub fn find(&self, address: u64, len: u64) -> Option<Location> {
        let mut location = Location::default();
        let is_found = (self.table()?.find)(address, len, &raw mut location) == 1;
        is_found.then_some(location)
    }

    /// Returns a new descriptor of an offered arena.
    pub fn descriptor(&self, serial: u64) -> Option<OwnedFd> {
        let fd = (self.table()?.descriptor)(serial);
        // SAFETY: the function returns -1 or a new descriptor, which no other code has.
        (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Whether an arena is offered.
    pub fn is_offered(&self, serial: u64) -> bool {
        self.table()
            .is_some_and(|table| (table.is_offered)(serial) == 1)
    }
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}
