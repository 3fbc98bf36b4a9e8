//! A [`SharedWords`] is a page of telemetry: shared memory that one process writes and others read,
//! with a header that identifies the endpoint.

#![expect(unsafe_code, reason = "shared memory as words")]

use std::ffi::CStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::posix_fallocate;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use selvedge::{Address, Errno, Error};

use super::crash;
use super::layout::{
    AT_MAGIC, AT_NAME, AT_OPENED, AT_PID, AT_PROVIDER, AT_VERSION, NAME_WORDS, PROVIDER_WORDS,
    PageKind, VERSION,
};
use crate::seal::{Writers, seal};

/// A page of `N` words, the size of its [`PageKind`].
pub(super) struct SharedWords<const N: usize> {
    map: MmapRaw,
    /// The memory file through which readers find the page. `None` if no other process can read it.
    file: Option<OwnedFd>,
    /// The page's slot in the list of pages that a crash writes out.
    crash_slot: Option<(PageKind, usize)>,
}

impl<const N: usize> SharedWords<N> {
    /// Opens a page that other processes can find. If the system refuses a memory file, the page is
    /// private.
    ///
    /// # Errors
    /// The system's error if there is no memory.
    pub(super) fn open(kind: PageKind, provider: &str, opened: u64) -> Result<Self, Error> {
        debug_assert_eq!(kind.words(), N);
        let (map, file) = match map_memfd(N) {
            Ok((map, file)) => (map, Some(file)),
            Err(cause) => {
                log::info!(target: "selvedge::core::core", "fi_top cannot show endpoints: no memory file for their statistics: {cause}");
                (map_private(N)?, None)
            }
        };
        let crash_slot = None;
        let mut page = Self {
            map,
            file,
            crash_slot,
        };
        page.set(AT_VERSION, VERSION);
        page.set(AT_PID, u64::from(std::process::id()));
        page.set(AT_OPENED, opened);
        page.write_text(AT_PROVIDER, PROVIDER_WORDS, provider);
        page.words()[AT_MAGIC].store(kind.magic(), Ordering::Release);
        page.crash_slot = crash::register(kind, page.words()).map(|slot| (kind, slot));
        Ok(page)
    }

    /// Opens a page that no other process can read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn private() -> Result<Self, Error> {
        Ok(Self {
            map: map_private(N)?,
            file: None,
            crash_slot: None,
        })
    }

    /// Sets the name of the endpoint.
    pub(super) fn set_name(&self, name: &str) {
        self.write_text(AT_NAME, NAME_WORDS, name);
    }

    pub(super) fn set(&self, at: usize, value: u64) {
        self.words()[at].store(value, Ordering::Relaxed);
    }

    fn write_text(&self, at: usize, words: usize, text: &str) {
        write_text(&self.words()[at..at + words], text);
    }

    #[inline(always)]
    pub(super) fn words(&self) -> &[AtomicU64; N] {
        // SAFETY: the mapping has `N` words, is aligned to pages, and stays as long as `self`;
        // this process accesses it only through these atomics.
        unsafe { &*self.map.as_ptr().cast() }
    }
}

/// Writes as much of a text as fits, and zeros behind it.
pub(super) fn write_text(words: &[AtomicU64], text: &str) {
    let mut bytes = text.bytes();
    for word in words {
        let bytes = std::array::from_fn(|_| bytes.next().unwrap_or(0));
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

fn map_memfd(words: usize) -> std::io::Result<(MmapRaw, OwnedFd)> {
    const NAME: &CStr = c"selvedge-sight";
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create(NAME, flags)?;
    // The memory is committed now, so a store to it cannot fail later.
    posix_fallocate(&file, 0, (words * 8) as i64)?;
    let map = MmapOptions::new().len(words * 8).map_raw(&file)?;
    // Readers find the file in `/proc/PID/fd`. Without a seal, any process of this user could
    // truncate it there.
    seal(&file, words * 8, Writers::Owner)?;
    Ok((map, file))
}

fn map_private(words: usize) -> Result<MmapRaw, Error> {
    let map = MmapOptions::new().len(words * 8).map_anon();
    map.map(MmapRaw::from).map_err(|cause| {
        let errno = cause.raw_os_error().map_or(Errno::NoMem, Errno::from_raw);
        Error::new(errno, "no memory for the statistics of an endpoint").because(cause)
    })
}

/// Returns the time of the system's monotonic clock in nanoseconds.
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        (time.tv_sec() as u64) * 1_000_000_000 + time.tv_nsec() as u64
    })
}

/// Returns the name that pages give the endpoint with this address: the address without its scheme.
pub fn endpoint_name(address: &Address) -> String {
    let text = address.to_string();
    match (address, text.split_once("://")) {
        (Address::Str(_), Some((_, name))) => name.to_owned(),
        _ => text,
    }
}

impl<const N: usize> Drop for SharedWords<N> {
    fn drop(&mut self) {
        if let Some((kind, slot)) = self.crash_slot {
            crash::unregister(kind, slot);
        }
    }
}

impl<const N: usize> fmt::Debug for SharedWords<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StatsPage({:?})", self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsRawFd;

    use nix::fcntl::{FallocateFlags, fallocate};

    use super::super::layout::WORDS;
    use super::*;

    #[test]
    fn a_reader_of_a_page_can_neither_truncate_it_nor_punch_holes() {
        let page = SharedWords::<WORDS>::open(PageKind::Stats, "seal", 1).unwrap();
        let fd = page.file.as_ref().unwrap().as_raw_fd();
        let path = format!("/proc/self/fd/{fd}");
        let found = OpenOptions::new().write(true).open(path);
        if let Ok(found) = found {
            assert!(found.set_len(0).is_err(), "the page was truncated");
            assert!(found.set_len(1 << 20).is_err(), "the page was extended");
            let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            assert!(
                fallocate(&found, hole, 0, 4096).is_err(),
                "the page has a hole"
            );
        }
        page.set(AT_PID, 7);
        assert_eq!(page.words()[AT_PID].load(Ordering::Relaxed), 7);
    }
}
