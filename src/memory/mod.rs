//! Memory that operations and peers access: registered, allocated and shared memory.

pub mod alloc;
pub mod mr;
mod pages;
pub mod shared;

pub use alloc::Allocation;
pub use mr::MemoryRegion;
