//! Memory registration: the handles to the regions in a domain's key table
//! ([`crate::memory::keys`]).

use std::fmt;
use std::sync::Arc;

use selvedge::{Counter, Desc, Errno, Error, IovMut, MemoryRegion, MrAccess, Result, mr};
use selvedge_kit::fork_guard::ForkGuard;

use crate::memory::keys::{NO_KEY, rights};
use crate::provider::shared::Shared;
use crate::smr::keys::{KeyEntry, Kind};

/// The largest number of segments of a registered region.
pub(crate) const MR_IOV_LIMIT: usize = 1;

/// A registered region.
struct Region {
    domain: Arc<Shared>,
    key: u64,
    /// The number of the entry in the key table; `None` for a region without remote rights.
    number: Option<u32>,
    fork_guard: ForkGuard,
}

/// Registers private memory of this process.
///
/// # Errors
/// [`Errno::NoKey`] when the requested key is taken; [`Errno::Inval`] for an invalid list of
/// segments; the system's error when memory for the table is short.
pub(crate) fn register(
    domain: &Arc<Shared>,
    memory: &[IovMut],
    attr: &mr::Attr,
) -> Result<Arc<dyn MemoryRegion>, Error> {
    let &[segment] = memory else {
        let count = memory.len();
        let message =
            format!("a region of {count} segments: the shm provider supports {MR_IOV_LIMIT}");
        return Err(Error::new(Errno::Inval, message));
    };
    let address = segment.base.expose_provenance() as u64;
    let len = segment.len as u64;
    let is_whole = address == 0 && segment.len == usize::MAX;
    if !is_whole && address.checked_add(len).is_none() {
        let message = format!("a region of {len} bytes at {address:#x} exceeds the address space");
        return Err(Error::new(Errno::Inval, message));
    }
    let entry = KeyEntry {
        key: attr.requested_key,
        start: domain.keys.remote_start(address, attr),
        len,
        rights: rights(attr.access),
        kind: if is_whole { Kind::Whole } else { Kind::Plain },
        memory: address,
        block: 0,
    };
    add(domain, entry, segment.base.expose_provenance())
}

/// Adds a region to the key table, under the key in `entry`, or under a new key where the provider
/// chooses keys. The region's first byte is at `address` in this process. A region without remote
/// rights gets no key.
///
/// # Errors
/// [`Errno::NoKey`] when the key is taken; the system's error when memory for the table is short.
pub(crate) fn add(
    domain: &Arc<Shared>,
    entry: KeyEntry,
    address: usize,
) -> Result<Arc<dyn MemoryRegion>, Error> {
    let (mut key, mut number) = (NO_KEY, None);
    if entry.rights != 0 {
        let added = domain.keys.insert(entry, address, &domain.announcements)?;
        (key, number) = (added.0, Some(added.1));
    }
    Ok(Arc::new(Region {
        domain: Arc::clone(domain),
        key,
        number,
        fork_guard: ForkGuard::current(),
    }))
}

impl MemoryRegion for Region {
    fn key(&self) -> u64 {
        self.key
    }

    fn desc(&self) -> Desc {
        Desc::NONE
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, access: MrAccess) -> Result<(), Error> {
        self.fork_guard.check_for(self)?;
        match self.number {
            Some(number) => self.domain.keys.bind(number, cntr, access),
            None => {
                let message =
                    "a counter for a region without remote rights: peers do not access it";
                Err(Error::new(Errno::Inval, message))
            }
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // In a forked child the table belongs to the parent.
        if let Some(number) = self.number.filter(|_| self.fork_guard.is_owner()) {
            self.domain.keys.remove(number);
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shm region, key {:#x}", self.key)
    }
}
