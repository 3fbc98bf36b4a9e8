//! Memory for the operations of a program: pages that stay mapped as long as the domain is open,
//! and their registrations.
//!
//! There are no references to the bytes. They are copied in and out, because the provider and peers
//! may change them at any time.

#![expect(unsafe_code, reason = "bytes that peers change are copied by address")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use memmap2::MmapMut;
use nix::sys::mman::{MmapAdvise, madvise};
use selvedge::{
    Allocation, Desc, Domain, Errno, IovMut, MemoryRegion, MrAccess, MrMode, alloc, mr,
};

use super::Count;
use crate::run::failure::{unsupported, wrong};

/// Memory in whole pages. Clones share the memory.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Pages>);

#[derive(Debug)]
struct Pages {
    base: *mut u8,
    len: usize,
    /// The number of the domain that keeps the pages mapped while its endpoints may use them.
    owner: u64,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    /// Private memory of this process.
    Private { _map: MmapMut },
    /// Memory that the domain allocated.
    Special { allocation: Arc<dyn Allocation> },
}

// SAFETY: the value is an address and the owner of its memory; the bytes are accessed by copies
// alone.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

/// A registration of memory. Dropping the last clone revokes the rights.
#[derive(Clone, Debug)]
pub struct Rights {
    region: Option<Arc<dyn MemoryRegion>>,
    base: u64,
}

impl Memory {
    /// Allocates private pages and writes each of them.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    pub fn private(owner: u64, len: usize) -> anyhow::Result<Self> {
        let mut map = MmapMut::map_anon(len.max(1))
            .with_context(|| format!("cannot get {len} bytes of memory"))?;
        map.fill(0);
        Ok(Self(Arc::new(Pages {
            base: map.as_mut_ptr(),
            len,
            owner,
            backing: Backing::Private { _map: map },
        })))
    }

    /// Has the domain allocate memory.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn special(
        owner: u64,
        domain: &dyn Domain,
        len: usize,
        access: MrAccess,
        key: u64,
    ) -> anyhow::Result<Self> {
        let attr = alloc::Attr::new(access).with_key(key);
        let allocation = domain.alloc(len.max(1), &attr)?;
        Ok(Self(Arc::new(Pages {
            base: allocation.base(),
            len,
            owner,
            backing: Backing::Special { allocation },
        })))
    }

    /// Registers the memory, if the domain or `access` requires that.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn register(
        &self,
        domain: &dyn Domain,
        access: MrAccess,
        key: u64,
    ) -> anyhow::Result<Rights> {
        if let Backing::Special { allocation } = &self.0.backing {
            let base = allocation.remote_addr();
            let region: Arc<dyn MemoryRegion> = Arc::clone(allocation) as _;
            let region = Some(region);
            return Ok(Rights { region, base });
        }
        let remote = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let mode = domain.mr_mode();
        if !access.intersects(remote) && !mode.contains(MrMode::LOCAL) {
            return Ok(Rights {
                region: None,
                base: 0,
            });
        }
        let mut attr = mr::Attr::default();
        attr.access = access;
        attr.requested_key = key;
        let bytes = [IovMut::from_raw(self.0.base.cast(), self.0.len)];
        // SAFETY: the program keeps the memory until its domain is closed
        // (`DomainContext::memory`), and accesses it by copies alone.
        let region = unsafe { domain.reg(&bytes, &attr) }
            .with_context(|| format!("cannot register {} bytes", self.0.len))?;
        Ok(Rights {
            region: Some(region),
            base: if mode.contains(MrMode::VIRT_ADDR) {
                self.0.base.addr() as u64
            } else {
                0
            },
        })
    }

    /// Registers the memory as one region of `count` segments.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn register_segments(
        &self,
        domain: &dyn Domain,
        access: MrAccess,
        key: u64,
        count: usize,
    ) -> anyhow::Result<Rights> {
        let len = self.0.len / count;
        let segment = |index: usize| IovMut::from_raw(self.at(index * len, len).cast(), len);
        let segments: Vec<_> = (0..count).map(segment).collect();
        let mut attr = mr::Attr::default();
        attr.access = access;
        attr.requested_key = key;
        // SAFETY: as in `register`.
        let region = Some(unsafe { domain.reg(&segments, &attr) }?);
        Ok(Rights { region, base: 0 })
    }

    /// The number of the domain that keeps the memory.
    #[inline]
    pub fn owner(&self) -> u64 {
        self.0.owner
    }

    /// Replaces the pages by new ones, which are zero, at the same address.
    ///
    /// # Errors
    /// Those of madvise(2); memory that the domain allocated cannot be renewed.
    pub fn renew(&self) -> anyhow::Result<()> {
        let is_private = matches!(self.0.backing, Backing::Private { .. });
        ensure!(is_private, "only private memory gets new pages");
        let base = NonNull::new(self.0.base.cast()).context("memory at address 0")?;
        // SAFETY: the pages belong to this value, no reference to them exists, and discarded
        // private pages read as zeros.
        unsafe { madvise(base, self.0.len, MmapAdvise::MADV_DONTNEED) }?;
        Ok(())
    }

    /// The length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "memory is never empty")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns the address of the `len` bytes at `offset`.
    ///
    /// # Panics
    /// When the bytes are not within the memory.
    #[inline]
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.0.len);
        assert!(inside, "{len} bytes at {offset} of {}", self.0.len);
        self.0.base.wrapping_add(offset)
    }

    /// The address of the first byte, as peers name it under [`MrMode::VIRT_ADDR`].
    pub fn address(&self) -> u64 {
        self.0.base.expose_provenance() as u64
    }

    /// Returns the offset of an address, if the address is within this memory.
    pub fn offset(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.0.base.addr())?;
        (offset < self.0.len).then_some(offset)
    }

    /// Copies `bytes` to `offset`.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: `at` checks that the bytes are within memory that `self` keeps; the source is a
        // slice, and there are no references to this memory.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Returns a copy of the `len` bytes at `offset`.
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let from = self.at(offset, len);
        // SAFETY: as in `put`, with source and destination exchanged.
        unsafe { std::ptr::copy(from.cast_const(), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Returns a copy of all bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.get(0, self.0.len)
    }

    /// Sets `len` bytes at `offset` to `byte`.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        let to = self.at(offset, len);
        // SAFETY: as in `put`.
        unsafe { std::ptr::write_bytes(to, byte, len) };
    }

    /// Loads the word at an offset that is a multiple of 8; a peer may change it at any time.
    pub fn word(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8), "a word at {offset}");
        let from = self.at(offset, 8);
        // SAFETY: as in `put`; pages begin at multiples of 8, and the word is accessed by atomics
        // and copies alone.
        let word = unsafe { AtomicU64::from_ptr(from.cast()) };
        word.load(Ordering::Acquire)
    }

    /// Loads the byte at `offset`; a peer may change it at any time.
    pub fn byte(&self, offset: usize) -> u8 {
        let from = self.at(offset, 1);
        // SAFETY: as in `put`; volatile, because a peer may have written it since the last load.
        unsafe { from.read_volatile() }
    }

    /// Calls `access` with bytes that are not changed during the call: those of sends that are not
    /// posted.
    pub fn with<T>(&self, offset: usize, len: usize, access: impl FnOnce(&[u8]) -> T) -> T {
        let from = self.at(offset, len).cast_const();
        // SAFETY: the bytes are within memory that `self` keeps. Callers pass memory of sends
        // alone, which neither receives nor peers write, and this thread does not write it during
        // the call.
        access(unsafe { std::slice::from_raw_parts(from, len) })
    }

    /// Checks that the `len` bytes at `offset` are all equal to `byte`.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check_fill(&self, offset: usize, len: usize, byte: u8) -> anyhow::Result<()> {
        const BLOCK: usize = 4096;
        for begin in (0..len).step_by(BLOCK) {
            let bytes = self.get(offset + begin, (len - begin).min(BLOCK));
            if let Some(index) = bytes.iter().position(|&found| found != byte) {
                return Err(wrong(format!(
                    "byte {} of {len} that must not be written is {:#04x}, not {byte:#04x}",
                    begin + index,
                    bytes[index]
                )));
            }
        }
        Ok(())
    }
}

impl Rights {
    /// The descriptor for local operations.
    #[inline]
    pub fn desc(&self) -> Desc {
        let region = self.region.as_ref();
        region.map_or(Desc::NONE, |region| region.desc())
    }

    /// The key of the registration.
    ///
    /// # Panics
    /// When the memory is not registered.
    pub fn key(&self) -> u64 {
        self.region().key()
    }

    /// The registered region.
    ///
    /// # Panics
    /// When the memory is not registered.
    pub fn region(&self) -> &Arc<dyn MemoryRegion> {
        let region = self.region.as_ref();
        region.expect("the domain and the access rights require a registration")
    }

    /// Binds a counter that counts writes of peers.
    ///
    /// # Errors
    /// When the memory has no remote rights; those of the domain.
    pub fn count_writes(&self, count: &Count) -> anyhow::Result<()> {
        let region = self.region.as_ref();
        let region = region.context("cannot count writes: the memory has no remote rights")?;
        let bound = region.bind_counter(count.cntr(), MrAccess::REMOTE_WRITE);
        bound.map_err(|error| match error.errno() {
            Errno::NoSys => unsupported(error.to_string()),
            _ => anyhow::Error::new(error).context("cannot bind a counter to a region"),
        })
    }

    /// The remote address and key.
    ///
    /// # Errors
    /// When the memory has no remote rights.
    pub fn remote(&self) -> anyhow::Result<Remote> {
        let region = self.region.as_ref();
        let region = region.context("the memory has no remote rights, and thus no key")?;
        ensure!(region.key() != alloc::NO_KEY, "the memory has no key");
        Ok(Remote {
            addr: self.base,
            key: region.key(),
        })
    }
}

/// The remote address and key of a peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The address of the first byte.
    pub addr: u64,
    /// The key.
    pub key: u64,
}

impl Remote {
    /// Encodes the address and the key as upstream's programs do: both words in native byte order.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.addr.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.key.to_ne_bytes());
        bytes
    }

    /// Decodes the bytes of [`Self::to_bytes`].
    ///
    /// # Errors
    /// When there are too few bytes.
    pub fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        let word = |offset: usize| -> anyhow::Result<u64> {
            let word = bytes
                .get(offset..offset + 8)
                .context("the encoded address and key are incomplete")?;
            Ok(u64::from_ne_bytes(word.try_into()?))
        };
        Ok(Self {
            addr: word(0)?,
            key: word(8)?,
        })
    }
}
