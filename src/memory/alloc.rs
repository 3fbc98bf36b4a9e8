//! Memory that a domain allocates: *special* memory, if the provider has it, which peers on the
//! same machine access by loads and stores.
//!
//! libfabric has no man page for special memory. Operations use it like any other memory: messages
//! may be sent from it and received into it, and with remote rights it is a target of fi_rma(3) and
//! fi_atomic(3). Only the access by peers is faster.

#![expect(unsafe_code, reason = "an allocation is a promise about the memory")]

use std::sync::Arc;

use super::pages::Pages;
use crate::{Counter, Desc, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode};

/// Attributes of an allocation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// Access rights of peers. Local operations are always allowed.
    pub access: MrAccess,
    /// The requested key. It is used for memory with remote rights, if the application chooses the
    /// keys (no `FI_MR_PROV_KEY`).
    pub requested_key: u64,
    /// Prefer huge pages: fewer TLB misses in large memory. This is a hint: where the system has no
    /// huge pages, ordinary pages are used.
    pub huge_pages: bool,
}

impl Attr {
    /// Attributes with these rights, and ordinary pages.
    #[must_use]
    pub fn new(access: MrAccess) -> Self {
        Self {
            access,
            ..Self::default()
        }
    }

    /// Sets the requested key.
    #[must_use]
    pub fn with_key(mut self, key: u64) -> Self {
        self.requested_key = key;
        self
    }

    /// Prefers huge pages.
    #[must_use]
    pub fn with_huge_pages(mut self) -> Self {
        self.huge_pages = true;
        self
    }
}

/// Memory that a domain has allocated and registered. Dropping the last handle revokes all rights
/// and frees the memory.
///
/// # Safety
/// For implementors: until the last handle is dropped,
/// - the bytes from [`Self::base`] on, [`Self::len`] of them rounded up to whole pages of 4096, are
///   valid for reads and writes; they begin at a multiple of 4096, and are zero at first;
/// - only the holder of the handle, the operations that it posts, and peers access these bytes. Peers
///   have the rights of [`Attr::access`]: without [`MrAccess::REMOTE_WRITE`] they cannot change them.
#[expect(clippy::len_without_is_empty, reason = "an allocation is never empty")]
pub unsafe trait Allocation: MemoryRegion {
    /// The first byte.
    fn base(&self) -> *mut u8;

    /// The requested length, in bytes; never 0.
    fn len(&self) -> usize;

    /// The remote address of the first byte ([`crate::rma::RmaIov::addr`]).
    fn remote_addr(&self) -> u64;

    /// Whether the memory is special: peers on the same machine access it without system calls.
    fn is_special(&self) -> bool;
}

/// The key of memory that peers may not access (`FI_KEY_NOTAVAIL`).
pub const NO_KEY: u64 = u64::MAX;

/// Private memory of this process, for domains without special memory.
#[derive(Debug)]
pub(crate) struct Ordinary {
    // Declared before the pages, so that the rights of peers are revoked before the pages are
    // freed.
    region: Option<Arc<dyn MemoryRegion>>,
    pages: Pages,
    len: usize,
    /// Whether remote addresses are virtual addresses (`FI_MR_VIRT_ADDR`); otherwise they are
    /// offsets.
    has_virtual_addresses: bool,
}

impl Ordinary {
    /// Allocates memory that is not registered.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a length of zero; [`Errno::NoMem`] when the memory cannot be allocated.
    pub(crate) fn new(len: usize, mr_mode: MrMode) -> Result<Self, Error> {
        if len == 0 {
            return Err(Error::new(
                Errno::Inval,
                "cannot allocate 0 bytes: the length must be at least 1",
            ));
        }
        Ok(Self {
            region: None,
            pages: Pages::new(len)?,
            len,
            has_virtual_addresses: mr_mode.contains(MrMode::VIRT_ADDR),
        })
    }

    /// The memory, for its registration.
    pub(crate) fn segment(&self) -> IovMut {
        IovMut::from_raw(self.base().cast(), self.len)
    }

    /// Sets the region of the memory. Dropping the value drops the region before the memory.
    pub(crate) fn set_region(&mut self, region: Arc<dyn MemoryRegion>) {
        self.region = Some(region);
    }
}

impl MemoryRegion for Ordinary {
    fn key(&self) -> u64 {
        self.region.as_ref().map_or(NO_KEY, |region| region.key())
    }

    fn desc(&self) -> Desc {
        let region = self.region.as_ref();
        region.map_or(Desc::NONE, |region| region.desc())
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        match &self.region {
            Some(region) => region.bind_counter(cntr, events),
            None => {
                let text = "cannot bind a counter: peers have no rights over the memory; allocate it with \
                            remote access";
                Err(Error::new(Errno::Inval, text))
            }
        }
    }
}

// SAFETY: the pages are whole and zeroed, belong to this value alone, and are freed after the
// region. Besides the holder and its operations, only peers access them, with the rights of the
// region.
unsafe impl Allocation for Ordinary {
    fn base(&self) -> *mut u8 {
        self.pages.base()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn remote_addr(&self) -> u64 {
        if self.has_virtual_addresses {
            self.pages.base().addr() as u64
        } else {
            0
        }
    }

    fn is_special(&self) -> bool {
        false
    }
}
