//! Memory that a domain makes: *special* memory where the provider has such, which peers of the
//! machine reach by plain loads and stores.
//!
//! There is no man page for it. It is memory like any other to whoever has it: messages may be sent
//! from it and received into it, and with remote rights it is the target of fi_rma(3) and
//! fi_atomic(3). What is special is only how fast peers get at it.

#![expect(unsafe_code, reason = "registration is a promise about the memory")]

use std::sync::Arc;

use crate::handle::sole;
use crate::pages::Pages;
use crate::{Counter, Desc, Domain, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, mr};

/// How memory is made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// Who may do what with it. Local operations always may.
    pub access: MrAccess,
    /// The wanted key, where the application chooses keys; for memory with remote rights.
    pub requested_key: u64,
    /// Prefer huge pages: fewer misses of the address cache in large memory. A hint: where the
    /// system has none, ordinary pages do.
    pub huge_pages: bool,
}

impl Attr {
    /// Memory with these rights, in ordinary pages.
    #[must_use]
    pub fn new(access: MrAccess) -> Self {
        Self {
            access,
            ..Self::default()
        }
    }

    /// The same, under the key that the application has chosen.
    #[must_use]
    pub fn with_key(mut self, key: u64) -> Self {
        self.requested_key = key;
        self
    }

    /// The same, in huge pages if there are any.
    #[must_use]
    pub fn with_huge_pages(mut self) -> Self {
        self.huge_pages = true;
        self
    }
}

/// Memory that a domain has made, registered from its birth on. Dropping the last handle ends every
/// right over it and gives the memory back.
///
/// # Safety
/// For implementors: until the last handle is dropped,
/// - the bytes from [`Self::base`] on, [`Self::len`] of them rounded up to whole pages of 4096, are
///   valid for reads and writes; they begin at a multiple of 4096, and were zero at first;
/// - nobody else reads or writes them but the operations that their holder posts, and peers that use
///   the rights of [`Attr::access`]; peers without [`MrAccess::REMOTE_WRITE`] cannot change them.
#[expect(
    clippy::len_without_is_empty,
    reason = "there is no empty memory to ask for"
)]
pub unsafe trait Allocation: MemoryRegion {
    /// The first byte.
    fn base(&self) -> *mut u8;

    /// Length in bytes, as it was asked for; never 0.
    fn len(&self) -> usize;

    /// What peers name the first byte by: [`crate::rma::RmaIov::addr`].
    fn remote_addr(&self) -> u64;

    /// Whether it is special: whether peers of the machine reach it without system calls.
    fn is_special(&self) -> bool;
}

/// The key of memory that no peer may name (`FI_KEY_NOTAVAIL`).
pub const NO_KEY: u64 = u64::MAX;

/// Memory of this process alone, registered where that is needed: for domains without special
/// memory.
///
/// # Errors
/// [`Errno::Inval`] for a length of zero, [`Errno::NoMem`] when there is no such memory; those of
/// [`Domain::reg`].
pub(crate) fn ordinary(
    domain: &(impl Domain + ?Sized),
    len: usize,
    attr: &Attr,
) -> Result<Arc<dyn Allocation>, Error> {
    if len == 0 {
        return Err(Error::new(Errno::Inval, "memory of 0 bytes"));
    }
    let pages = Pages::new(len)?;
    let is_remote = attr
        .access
        .intersects(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
    let mr_mode = domain.mr_mode();
    let region = match is_remote || mr_mode.contains(MrMode::LOCAL) {
        true => Some(register(domain, &pages, len, attr)?),
        false => None,
    };
    Ok(Arc::new(Ordinary {
        region,
        pages,
        len,
        by_address: mr_mode.contains(MrMode::VIRT_ADDR),
    }))
}

fn register(
    domain: &(impl Domain + ?Sized),
    pages: &Pages,
    len: usize,
    attr: &Attr,
) -> Result<Arc<dyn MemoryRegion>, Error> {
    let local = MrAccess::SEND | MrAccess::RECV | MrAccess::READ | MrAccess::WRITE;
    let attr = mr::Attr {
        access: attr.access | local,
        requested_key: attr.requested_key,
        ..mr::Attr::default()
    };
    let memory = [IovMut::from_raw(pages.base().cast(), len)];
    // SAFETY: `Ordinary` drops the only handle of the region before the pages. With remote rights,
    // its holder knows from `Allocation` that peers may change the bytes.
    sole(unsafe { domain.reg(&memory, &attr) }?, "memory region")
}

/// What [`ordinary`] makes.
#[derive(Debug)]
struct Ordinary {
    // Before the memory, so that no peer has rights over it when it goes.
    region: Option<Arc<dyn MemoryRegion>>,
    pages: Pages,
    len: usize,
    by_address: bool,
}

impl MemoryRegion for Ordinary {
    fn key(&self) -> u64 {
        self.region.as_ref().map_or(NO_KEY, |region| region.key())
    }

    fn desc(&self) -> Desc {
        let region = self.region.as_ref();
        region.map_or(Desc::NONE, |region| region.desc())
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        match &self.region {
            Some(region) => region.bind_counter(cntr, what),
            None => {
                let what = "a counter for memory that peers may not use";
                Err(Error::new(Errno::Inval, what))
            }
        }
    }
}

// SAFETY: the pages are whole, zeroed, this value's alone and freed after the region, whose rights
// are all that anybody else has over them.
unsafe impl Allocation for Ordinary {
    fn base(&self) -> *mut u8 {
        self.pages.base()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn remote_addr(&self) -> u64 {
        match self.by_address {
            true => self.pages.base().addr() as u64,
            false => 0,
        }
    }

    fn is_special(&self) -> bool {
        false
    }
}
