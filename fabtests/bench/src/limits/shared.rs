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

use super::ring::Lane;
use super::stream::Stream;
use crate::fabric::LINES;

/// A word alone on its cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Line(pub(super) AtomicU64);

/// A futex alone on its cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct FutexLine(pub(super) AtomicU32);

/// Everything that the processes share. Fields named `to_passive` are written by the active
/// process, fields named `to_active` by the passive one.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Layout {
    /// Handed to and fro: odd when the active process has written it, even after the answer.
    pub(super) line: Line,
    /// The passive process's number, for CMA.
    pub(super) cma_pid: Line,
    /// Where the passive process's memory for CMA starts; set back to 0 by the active process
    /// when it needs it no longer.
    pub(super) cma_base: Line,
    /// Where the active process puts.
    pub(super) put_to_passive: Line,
    /// Written to wake the passive process.
    pub(super) futex_to_passive: FutexLine,
    /// Written to wake the active process.
    pub(super) futex_to_active: FutexLine,
    /// Where the passive process puts; not beside the other one, which a prefetcher would take along.
    pub(super) put_to_active: Line,
    /// One-line ring.
    pub(super) lane_to_passive: Lane,
    /// One-line ring.
    pub(super) lane_to_active: Lane,
    /// Ring of bytes.
    pub(super) stream_to_passive: Stream,
    /// Ring of bytes.
    pub(super) stream_to_active: Stream,
    /// How often the passive process has written `lines`.
    pub(super) lines_written: Line,
    /// How often the active process has read them.
    pub(super) lines_read: Line,
    /// Written by the passive process.
    pub(super) lines: [Line; LINES],
}

/// A mapping of everything that the processes share.
#[derive(Debug)]
pub struct Segment {
    map: MmapRaw,
}

impl Segment {
    /// Makes memory, all zero, to be mapped by both processes.
    ///
    /// # Errors
    /// The system's, when there is no memory.
    pub fn create() -> anyhow::Result<OwnedFd> {
        let fd = memfd_create(c"fabtests", MFdFlags::MFD_CLOEXEC)
            .context("cannot make the shared memory of the limits")?;
        let file = File::from(fd.try_clone()?);
        file.set_len(size_of::<Layout>() as u64)
            .context("cannot size the shared memory of the limits")?;
        Ok(fd)
    }

    /// Maps what [`Self::create`] made and touches every page of it.
    ///
    /// # Errors
    /// The system's, when it cannot be mapped, or when it is too small.
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
        // atomics and `UnsafeCell`s only, so that the other process may write while we look.
        unsafe { &*layout }
    }
}

const _: () = assert!(align_of::<Layout>() <= 4096);
const _: () = assert!(size_of::<Line>() == 64);
const _: () = assert!(size_of::<FutexLine>() == 64);
