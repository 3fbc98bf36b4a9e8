//! The memory that both processes of a measurement map.

#![expect(
    unsafe_code,
    reason = "memory that two processes share is reached by pointers"
)]

mod cache_line;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, ensure};
use memmap2::{MmapOptions, MmapRaw};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::byte_ring::ByteRing;
use super::ring::Ring;
use crate::fabric::LINES;
use crate::pair::Side;

pub(super) use cache_line::{CacheLine, FutexLine};

/// The memory that the processes share. The active process writes fields named `to_passive`, the
/// passive one those named `to_active`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Layout {
    /// The line of the round trip. Its value is odd after a store of the active process, even after
    /// the response.
    pub(super) line: CacheLine,
    /// Process ID of the passive process, for CMA.
    pub(super) cma_pid: CacheLine,
    /// Address of the passive process's memory for CMA; the active process resets it to 0 when it
    /// is done.
    pub(super) cma_base: CacheLine,
    /// Target of the active process's puts.
    pub(super) put_to_passive: CacheLine,
    /// Futex that wakes the passive process.
    pub(super) futex_to_passive: FutexLine,
    /// Futex that wakes the active process.
    pub(super) futex_to_active: FutexLine,
    /// Target of the passive process's puts. It is not next to the other target, which a prefetcher
    /// would fetch with it.
    pub(super) put_to_active: CacheLine,
    /// One-line ring of messages to the passive process.
    pub(super) ring_to_passive: Ring,
    /// One-line ring of messages to the active process.
    pub(super) ring_to_active: Ring,
    /// Ring of bytes to the passive process.
    pub(super) byte_ring_to_passive: ByteRing,
    /// Ring of bytes to the active process.
    pub(super) byte_ring_to_active: ByteRing,
    /// Number of turns in which the passive process has written `lines`.
    pub(super) lines_written: CacheLine,
    /// Number of turns in which the active process has read `lines`.
    pub(super) lines_read: CacheLine,
    /// The lines that the passive process writes and the active process reads.
    pub(super) lines: [CacheLine; LINES],
}

impl Layout {
    /// The ring that this side writes, and the one that it reads.
    pub(super) fn rings(&self, side: Side) -> [&Ring; 2] {
        let (to_passive, to_active) = (&self.ring_to_passive, &self.ring_to_active);
        match side {
            Side::Active => [to_passive, to_active],
            Side::Passive => [to_active, to_passive],
        }
    }

    /// The ring of bytes that this side writes, and the one that it reads.
    pub(super) fn byte_rings(&self, side: Side) -> [&ByteRing; 2] {
        let (to_passive, to_active) = (&self.byte_ring_to_passive, &self.byte_ring_to_active);
        match side {
            Side::Active => [to_passive, to_active],
            Side::Passive => [to_active, to_passive],
        }
    }
}

/// A mapping of the memory that the processes share.
#[derive(Debug)]
pub struct Segment {
    map: MmapRaw,
}

impl Segment {
    /// Creates a zeroed memory file that both processes map.
    ///
    /// # Errors
    /// The system's error, when memory cannot be allocated.
    pub fn create() -> anyhow::Result<OwnedFd> {
        let fd = memfd_create(c"fabtests", MFdFlags::MFD_CLOEXEC)
            .context("cannot create the shared memory for the limits")?;
        let file = File::from(fd.try_clone()?);
        file.set_len(size_of::<Layout>() as u64)
            .context("cannot set the size of the shared memory for the limits")?;
        Ok(fd)
    }

    /// Maps the file of [`Self::create`] and touches every page.
    ///
    /// # Errors
    /// The system's error, when the file cannot be mapped; an error for a file that is too small.
    pub fn map(fd: impl AsFd) -> anyhow::Result<Self> {
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        ensure!(
            file.metadata()?.len() >= size_of::<Layout>() as u64,
            "the shared memory for the limits is too small"
        );
        let map = MmapOptions::new()
            .len(size_of::<Layout>())
            .populate()
            .map_raw(&file)
            .context("cannot map the shared memory for the limits")?;
        Ok(Self { map })
    }

    /// The shared fields.
    pub(super) fn layout(&self) -> &Layout {
        let layout: *const Layout = self.map.as_mut_ptr().cast_const().cast();
        // SAFETY: the mapping is at least as large as a `Layout` (`map` checks it), page-aligned,
        // and lives as long as `self`. All-zero bytes are a valid `Layout`, and it consists of
        // atomics and `UnsafeCell`s only, so that the other process may write while this one reads.
        unsafe { &*layout }
    }
}

const _: () = assert!(align_of::<Layout>() <= 4096);
