//! The memory that both processes of a measurement map.

#![expect(
    unsafe_code,
    reason = "memory that two processes share is reached by pointers"
)]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use anyhow::{Context as _, ensure};
use memmap2::{MmapOptions, MmapRaw};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::byte_ring::ByteRing;
use super::ring::Ring;
use crate::fabric::LINES;

/// A word alone on its cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct CacheLine(pub(super) AtomicU64);

/// A futex alone on its cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct FutexLine(pub(super) AtomicU32);

/// The memory that the processes share. The active process writes fields named `to_passive`, the
/// passive one those named `to_active`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Layout {
    /// The line of the round trip: odd after the active process has written it, even after the
    /// response.
    pub(super) line: CacheLine,
    /// The passive process's number, for CMA.
    pub(super) cma_pid: CacheLine,
    /// Address of the passive process's memory for CMA; the active process resets it to 0 when it
    /// is done.
    pub(super) cma_base: CacheLine,
    /// Target of the active process's puts.
    pub(super) put_to_passive: CacheLine,
    /// Written to wake the passive process.
    pub(super) futex_to_passive: FutexLine,
    /// Written to wake the active process.
    pub(super) futex_to_active: FutexLine,
    /// Target of the passive process's puts. It is not next to the other target, which a prefetcher
    /// would fetch with it.
    pub(super) put_to_active: CacheLine,
    /// One-line ring.
    pub(super) ring_to_passive: Ring,
    /// One-line ring.
    pub(super) ring_to_active: Ring,
    /// Ring of bytes.
    pub(super) byte_ring_to_passive: ByteRing,
    /// Ring of bytes.
    pub(super) byte_ring_to_active: ByteRing,
    /// How often the passive process has written `lines`.
    pub(super) lines_written: CacheLine,
    /// How often the active process has read them.
    pub(super) lines_read: CacheLine,
    /// Written by the passive process.
    pub(super) lines: [CacheLine; LINES],
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
    /// The system's, when memory cannot be allocated.
    pub fn create() -> anyhow::Result<OwnedFd> {
        let fd = memfd_create(c"fabtests", MFdFlags::MFD_CLOEXEC)
            .context("cannot make the shared memory of the limits")?;
        let file = File::from(fd.try_clone()?);
        file.set_len(size_of::<Layout>() as u64)
            .context("cannot size the shared memory of the limits")?;
        Ok(fd)
    }

    /// Maps the file of [`Self::create`] and touches every page.
    ///
    /// # Errors
    /// The system's, when the file cannot be mapped; when it is too small.
    pub fn map(fd: impl AsFd) -> anyhow::Result<Self> {
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        ensure!(
            file.metadata()?.len() >= size_of::<Layout>() as u64,
            "the shared memory of the limits is too small"
        );
        let map = MmapOptions::new()
            .len(size_of::<Layout>())
            .populate()
            .map_raw(&file)
            .context("cannot map the shared memory of the limits")?;
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
const _: () = assert!(size_of::<CacheLine>() == 64);
const _: () = assert!(size_of::<FutexLine>() == 64);
