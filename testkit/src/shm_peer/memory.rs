//! Shared memory of a hostile peer: any process may write every word of it at any time.

#![expect(
    unsafe_code,
    reason = "memory that other processes map, accessed by pointers"
)]

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::{FcntlArg, SealFlag, fcntl, posix_fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// A mapping of a memory file, and the descriptor of the file.
#[derive(Debug)]
pub struct RawMemory {
    map: MmapRaw,
    fd: OwnedFd,
}

impl RawMemory {
    /// Creates a memory file of `len` bytes, a multiple of 4096, and seals it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn create(len: usize, seals: SealFlag) -> anyhow::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(c"adversary", flags).context("memfd_create(2)")?;
        let file = File::from(fd.try_clone()?);
        // This call fails if the memory cannot be committed; a later access would raise SIGBUS.
        posix_fallocate(&fd, 0, i64::try_from(len)?)?;
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).context("sealing memory")?;
        Ok(Self { map, fd })
    }

    /// Maps a memory file of another process for reading; also for writing if `is_written`.
    ///
    /// # Errors
    /// When the file is shorter than a page.
    pub fn map(fd: OwnedFd, is_written: bool) -> anyhow::Result<Self> {
        let file = File::from(fd.try_clone()?);
        let len = file.metadata()?.len() as usize;
        ensure!(
            len >= 4096,
            "a memory file of {len} bytes is shorter than a page"
        );
        let options = MmapOptions::new();
        let map = if is_written {
            options.map_raw(&file)?
        } else {
            options.map_raw_read_only(&file)?
        };
        Ok(Self { map, fd })
    }

    /// The descriptor of the file, to send to a peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The length in words.
    pub fn words(&self) -> usize {
        self.map.len() / 8
    }

    /// Loads a word.
    pub fn load(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    /// Stores a word. The memory must be mapped for writing.
    pub fn store(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Release);
    }

    /// Inverts bits of a word. The memory must be mapped for writing.
    pub fn flip(&self, word: usize, bits: u64) {
        self.word(word).fetch_xor(bits, Ordering::Relaxed);
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        let word = word % self.words();
        let start: *const AtomicU64 = self.map.as_ptr().cast();
        // SAFETY: `word` is below the number of words in the mapping.
        let address = unsafe { start.add(word) };
        // SAFETY: the mapping begins at a page, so the word is aligned; it lives as long as `self`;
        // all bit patterns are valid, and other processes may write to an atomic.
        unsafe { &*address }
    }
}

/// The seals of a valid outbox.
pub fn outbox_seals() -> SealFlag {
    doorbell_seals() | SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE)
}

/// The seals of a valid doorbell.
pub fn doorbell_seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}
