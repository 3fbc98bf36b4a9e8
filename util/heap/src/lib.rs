//! The shared heap: large allocations of a program in memory files that other processes can map.
//!
//! An allocation from a threshold on (64 KiB by default) lies in an *arena*: a sealed memory file
//! that this process has mapped at an address of its own. A peer of the shm provider that has the
//! file's descriptor maps it read-only, and copies messages out of it without a system call.
//! Smaller allocations, and those for which the heap has no memory, go to another allocator.
//!
//! - [`SharedHeap`] is the heap as a `GlobalAlloc`; `libselvedge_heap.so` is the heap for
//!   `LD_PRELOAD`. Both call [`heap`].
//! - [`table`] is the interface between the heap and the provider.
//! - A fork(2) ends the sharing of all existing arenas (the module `fork`): afterwards parent and
//!   child have separate copies, as of any memory.
//!
//! The heap calls no allocator while it holds its lock. Its tables lie in static memory and in
//! mappings of their own.
//!
//! Pages are given back when an arena is empty, not earlier: the seal that denies writing to peers
//! (`F_SEAL_FUTURE_WRITE`) also denies holes to the owner. A large allocation has an arena of its
//! own for this reason.

mod arena;
mod arenas;
mod config;
mod extents;
mod fork;
mod global;
pub mod heap;
mod limits;
mod lock;
mod system;
pub mod table;

pub use global::SharedHeap;
