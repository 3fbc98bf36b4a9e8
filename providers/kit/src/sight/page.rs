//! The page of an endpoint, as its owner writes it.

#![expect(unsafe_code, reason = "shared memory as words")]

use std::ffi::CStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::posix_fallocate;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::time::{ClockId, clock_gettime};
use selvedge::{Errno, Error};

use super::crash;
use super::flight::{self, What};
use super::layout::{
    AT_MAGIC, AT_NAME, AT_OPENED, AT_PID, AT_PROVIDER, AT_TALLIES, AT_VERSION, AT_WAYS, MAGIC,
    NAME_WORDS, PROVIDER_WORDS, Tally, VERSION, WORDS, Way,
};
use super::standing::{self, Standing};

/// How often an endpoint that is busy writes down how things stand, in nanoseconds.
const INTERVAL: u64 = 50_000_000;

/// The page of an endpoint. One thread at a time writes it: whoever holds the endpoint's lock.
pub struct Page {
    map: MmapRaw,
    /// What readers find it by; none where the system gave no file, and nobody else reads it.
    file: Option<OwnedFd>,
    /// Both say the same, each to those who know only it.
    opened: (Instant, u64),
    /// When the standing is to be written down again, in nanoseconds since it was opened.
    due: AtomicU64,
    /// What crashes write out.
    wreck: Option<usize>,
}

impl Page {
    /// A page for an endpoint of a provider. Where the system refuses a memory file, the endpoint
    /// counts for itself.
    ///
    /// # Errors
    /// The system's, when there is no memory at all.
    pub fn open(provider: &str) -> Result<Self, Error> {
        let (map, file) = match shared() {
            Ok((map, file)) => (map, Some(file)),
            Err(cause) => {
                log::info!(target: "selvedge::core::core", "endpoints are out of sight: {cause}");
                (private()?, None)
            }
        };
        let mut page = Self::of(map, file);
        page.set(AT_VERSION, VERSION);
        page.set(AT_PID, u64::from(std::process::id()));
        page.set(AT_OPENED, page.opened.1);
        page.put_text(AT_PROVIDER, PROVIDER_WORDS, provider);
        page.words()[AT_MAGIC].store(MAGIC, Ordering::Release);
        page.wreck = crash::enlist(page.words());
        Ok(page)
    }

    /// A page that nobody else sees.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn unseen() -> Result<Self, Error> {
        Ok(Self::of(private()?, None))
    }

    fn of(map: MmapRaw, file: Option<OwnedFd>) -> Self {
        Self {
            map,
            file,
            opened: (Instant::now(), now()),
            due: AtomicU64::new(0),
            wreck: None,
        }
    }

    /// Says what the endpoint is called.
    pub fn set_name(&self, name: &str) {
        self.put_text(AT_NAME, NAME_WORDS, name);
    }

    /// Counts an operation of `len` bytes.
    #[inline(always)]
    pub fn count(&self, what: Tally, len: usize) {
        self.add(AT_TALLIES + 2 * what as usize, len);
    }

    /// Counts a message of `len` bytes under the way that it took, besides.
    #[inline(always)]
    pub fn count_way(&self, way: Way, len: usize) {
        self.add(AT_WAYS + 2 * way as usize, len);
    }

    #[inline(always)]
    fn add(&self, at: usize, len: usize) {
        let words = self.words();
        bump(&words[at], 1);
        bump(&words[at + 1], len as u64);
    }

    /// Whether the standing is to be written down now: a busy endpoint asks when it has read the
    /// clock anyway.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        self.since_opened(now) >= self.due.load(Ordering::Relaxed)
    }

    /// Writes down how things stand.
    #[cold]
    pub fn write_standing(&self, now: Instant, tell: impl FnOnce(&mut Standing<'_>)) {
        let since = self.since_opened(now);
        self.due.store(since + INTERVAL, Ordering::Relaxed);
        standing::write(self.words(), self.opened.1 + since, tell);
    }

    /// Notes an event with a peer.
    #[cold]
    pub fn note(&self, what: What, peer: &str, number: u64) {
        flight::note(self.words(), now(), what, peer, number);
    }

    fn since_opened(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.opened.0).as_nanos() as u64
    }

    fn set(&self, at: usize, value: u64) {
        self.words()[at].store(value, Ordering::Relaxed);
    }

    fn put_text(&self, at: usize, words: usize, text: &str) {
        put_text(&self.words()[at..at + words], text);
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64; WORDS] {
        // SAFETY: the mapping has `WORDS` words, is aligned to pages, and stays as long as `self`;
        // nothing reaches it from this process but these atomics.
        unsafe { &*self.map.as_ptr().cast() }
    }
}

/// Adds to a word that nobody else writes.
#[inline(always)]
fn bump(word: &AtomicU64, by: u64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

/// Writes what fits of a text, and zeros behind it.
pub(super) fn put_text(words: &[AtomicU64], text: &str) {
    let mut bytes = text.bytes();
    for word in words {
        let bytes = std::array::from_fn(|_| bytes.next().unwrap_or(0));
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}

fn shared() -> std::io::Result<(MmapRaw, OwnedFd)> {
    const NAME: &CStr = c"selvedge-sight";
    let file = memfd_create(NAME, MFdFlags::MFD_CLOEXEC)?;
    // Committed now: a store to it cannot fail later.
    posix_fallocate(&file, 0, (WORDS * 8) as i64)?;
    let map = MmapOptions::new().len(WORDS * 8).map_raw(&file)?;
    Ok((map, file))
}

fn private() -> Result<MmapRaw, Error> {
    let map = MmapOptions::new().len(WORDS * 8).map_anon();
    map.map(MmapRaw::from).map_err(|cause| {
        let errno = cause.raw_os_error().map_or(Errno::NoMem, Errno::from_raw);
        Error::new(errno, "no memory for an endpoint's counters").because(cause)
    })
}

/// The system's monotonic clock, in nanoseconds.
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        (time.tv_sec() as u64) * 1_000_000_000 + time.tv_nsec() as u64
    })
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(place) = self.wreck {
            crash::discharge(place);
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({:?})", self.file)
    }
}
