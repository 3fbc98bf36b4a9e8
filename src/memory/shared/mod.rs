//! `SharedBytes`: memory that several threads and processes access at the same time.
//!
//! Registered memory with remote rights, the memory of a [`crate::owned::SharedRegion`] and the
//! mapped memory of a peer are accessed only through this type: by copies and words of the owner,
//! and by writes, reads and atomics that this process executes for peers. No code creates a
//! reference to the bytes.
//!
//! # Granules
//!
//! In Rust, two unsynchronized accesses of one byte have no defined result if one of them is a
//! write, unless both are atomic and of the same size. Therefore every byte of a region has one
//! *granule*. The granule of a byte is the largest aligned block of 8, 4, 2 or 1 bytes around the
//! byte that is within the region. Every access is an atomic access of whole granules:
//!
//! - an access that covers a whole granule stores or loads the granule;
//! - a write that covers a part of a granule keeps the other bytes by a compare-exchange;
//! - an atomic of 1, 2 or 4 bytes is a compare-exchange of the granule around the bytes;
//! - an aligned word of 8 bytes is a granule.
//!
//! All granules have 8 bytes, except at the ends of a region that does not begin and end at
//! multiples of 8. Granules belong to the region, not to the accessed part, so two accesses of one
//! byte have the same size. Atomics of 16 bytes are in `selvedge_kit::atomic`, by instructions that
//! the compiler does not see.
//!
//! # Long copies
//!
//! The compiler emits one instruction for each atomic access, so a copy by granules is slower than
//! `memmove` by a factor of up to 4. On x86-64 the copies here call the C library's `memmove` from
//! inline assembly ([`copy_with`]). The compiler has to assume that inline assembly does anything
//! that Rust code could do in its place. That Rust code is the copy by granules in this module,
//! with each granule accessed any number of times: `memmove` accesses no other bytes, and every
//! value that
//! `memmove` can load is a value that loads of granules could return. So the assembly has the same
//! meaning in the memory model as the copy by granules. A separate call of `memmove` copies the
//! aligned words, apart from the bytes before and after them, so that `memmove` does not split a
//! word.
//!
//! System calls that fill or send such memory have the same meaning: the compiler knows as little
//! about the kernel's accesses as about the accesses of assembly.

mod bytes;
mod copy;
mod granule;

pub use bytes::{Margins, SharedBytes};
pub use copy::{CHUNK, CopyMethod, copy_with};

#[cfg(test)]
mod tests;
