//! Registered memory by key, for providers whose peers access it by requests to this process.
//!
//! Code that accesses a region's memory holds [`Regions`] meanwhile. Deregistration waits until no
//! code holds it. A provider decides whether it announces regions to peers; most do not.

mod counts;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::shared::SharedBytes;
use selvedge::{Counter, Desc, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, mr};

use crate::fork_guard::ForkGuard;
use crate::presence;

pub use counts::{AccessEvents, Bound, Counts, ObjectSharing, RegionCounters};

/// The number of segments of a registered region.
pub const MR_IOV_LIMIT: usize = 1;
/// The key of a region that peers may not use (`FI_KEY_NOTAVAIL`).
const NO_KEY: u64 = u64::MAX;
const REMOTE: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The regions of a domain that peers may access, by key.
#[derive(Debug)]
pub struct Keys {
    mode: MrMode,
    table: RwLock<Table>,
    /// The counters that regions may be bound to, if the provider supports them.
    region_counters: Option<Arc<RegionCounters>>,
    /// Whether a counter has ever been bound to a region. In most programs none has, and an access
    /// checks only this flag.
    are_counted: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    entries: FxHashMap<u64, Entry>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The remote address of the first byte.
    start: u64,
    len: usize,
    /// The local address of the first byte.
    first: usize,
    access: MrAccess,
}

/// A lock on the regions of a domain, held by code that accesses their memory. No region is
/// registered or deregistered meanwhile.
#[derive(Debug)]
pub struct Regions<'a>(RwLockReadGuard<'a, Table>);

/// The reason why an access is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No region has the key.
    Key,
    /// The region does not grant the right.
    Right,
    /// Some of the bytes are outside of the region.
    Bounds,
    /// The region covers all addresses, but the addresses of this access are not mapped with the
    /// necessary rights.
    Unmapped,
}

impl Denied {
    /// Returns the error number for the completion.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Key => Errno::KeyRejected,
            Self::Right => Errno::Acces,
            Self::Bounds | Self::Unmapped => Errno::Fault,
        }
    }
}

impl Keys {
    /// Makes an empty table. `mode` says how peers address memory and who chooses keys.
    pub fn new(mode: MrMode) -> Self {
        let basic = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
        let mode = match mode.contains(MrMode::BASIC) {
            true => mode | basic,
            false => mode,
        };
        Self {
            mode,
            table: RwLock::default(),
            region_counters: None,
            are_counted: AtomicBool::new(false),
        }
    }

    /// Makes the counters of a domain available to its regions.
    #[must_use]
    pub fn with_counters(mut self, region_counters: &Arc<RegionCounters>) -> Self {
        self.region_counters = Some(Arc::clone(region_counters));
        self
    }

    /// Returns the mode of [`Self::new`], with the modes that [`MrMode::BASIC`] implies.
    pub const fn mode(&self) -> MrMode {
        self.mode
    }

    /// Locks the regions for accesses to their memory. The caller holds the lock for one step of a
    /// copy at most.
    pub fn regions(&self) -> Regions<'_> {
        Regions(self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a completed access by a peer in the counters of the regions. Each segment is a key
    /// and a number of bytes; `access` says whether the peer has read the memory, changed it, or
    /// both.
    #[inline]
    pub fn count(&self, segments: impl Iterator<Item = (u64, usize)>, access: MrAccess) {
        if self.are_counted.load(Ordering::Relaxed) {
            let events = self.regions().0.counts.events_of(segments, access);
            // The lock is released by now, because counting wakes threads and starts deferred work.
            events.count();
        }
    }

    fn bind(&self, key: u64, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        let Some(region_counters) = &self.region_counters else {
            let message =
                format!("region of key {key:#x}: this provider has no counters of regions");
            return Err(Error::new(Errno::NoSys, message));
        };
        if key == NO_KEY {
            let message = "a counter for a region without remote rights: peers cannot access it";
            return Err(Error::new(Errno::Inval, message));
        }
        let cntr = region_counters.add_counter(cntr)?;
        self.table().counts.bind(key, &cntr, events)?;
        self.are_counted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Registers memory for [`selvedge::Domain::reg`], whose caller has made the promise about the
    /// memory.
    ///
    /// # Errors
    /// [`Errno::NoKey`] if the requested key is in use; [`Errno::Inval`] unless `memory` is one
    /// segment within the address space.
    pub fn register(
        self: &Arc<Self>,
        memory: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let &[segment] = memory else {
            let count = memory.len();
            let message = format!("a region of {count} segments: the limit is {MR_IOV_LIMIT}");
            return Err(Error::new(Errno::Inval, message));
        };
        let first = segment.base.expose_provenance();
        if first.checked_add(segment.len).is_none() {
            let message = format!(
                "a region of {} bytes at {first:#x} exceeds the address space",
                segment.len
            );
            return Err(Error::new(Errno::Inval, message));
        }
        let entry = Entry {
            start: match self.mode.contains(MrMode::VIRT_ADDR) {
                true => first as u64,
                false => attr.offset,
            },
            len: segment.len,
            first,
            access: attr.access,
        };
        let key = match attr.access.intersects(REMOTE) {
            true => self.add(entry, attr.requested_key)?,
            false => NO_KEY,
        };
        Ok(Arc::new(Region {
            keys: Arc::clone(self),
            key,
            fork_guard: ForkGuard::current(),
        }))
    }

    fn add(&self, entry: Entry, requested: u64) -> Result<u64, Error> {
        let mut table = self.table();
        let by_provider = self.mode.contains(MrMode::PROV_KEY);
        let mut key = if by_provider { random() } else { requested };
        while by_provider && (key == NO_KEY || table.entries.contains_key(&key)) {
            key = random();
        }
        if key == NO_KEY || table.entries.contains_key(&key) {
            let message = format!("the key {key:#x} is in use by another region");
            return Err(Error::new(Errno::NoKey, message));
        }
        table.entries.insert(key, entry);
        Ok(key)
    }

    fn table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Regions<'_> {
    /// Returns the memory of `segment`, which a peer wants to access with `rights`.
    ///
    /// # Errors
    /// The reason why the access is denied.
    pub fn locate(&self, segment: &RmaIov, rights: MrAccess) -> Result<SharedBytes, Denied> {
        let entry = self.0.entries.get(&segment.key).ok_or(Denied::Key)?;
        if !entry.access.contains(rights) {
            return Err(Denied::Right);
        }
        let offset = segment
            .addr
            .checked_sub(entry.start)
            .ok_or(Denied::Bounds)?;
        let offset = usize::try_from(offset).map_err(|_| Denied::Bounds)?;
        if offset > entry.len || segment.len > entry.len - offset {
            return Err(Denied::Bounds);
        }
        if !entry.is_whole() {
            return Ok(shared(entry.first, entry.len).part(offset, segment.len));
        }
        let first = entry.first + offset;
        match is_accessible(first, segment.len, rights) {
            true => Ok(shared(first, segment.len)),
            false => Err(Denied::Unmapped),
        }
    }
}

impl Entry {
    /// Whether the region covers all addresses, most of which are not mapped.
    const fn is_whole(&self) -> bool {
        self.first == 0 && self.len == usize::MAX
    }
}

fn is_accessible(first: usize, len: usize, rights: MrAccess) -> bool {
    match rights.contains(MrAccess::REMOTE_WRITE) {
        true => presence::is_writable(first, len),
        false => presence::is_readable(first, len),
    }
}

#[expect(unsafe_code, reason = "registration is the promise about the memory")]
fn shared(first: usize, len: usize) -> SharedBytes {
    let first = std::ptr::with_exposed_provenance_mut(first);
    // SAFETY: the caller of `Domain::reg` promised that until the region is dropped, its bytes are
    // valid and, with remote rights, accessed by granules. The drop waits for the lock that
    // `Regions` holds. These are the region's bytes, or, if it covers all addresses, bytes that
    // `locate` has found to be mapped.
    unsafe { SharedBytes::new(first, len) }
}

/// A random number: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// A registered region.
struct Region {
    keys: Arc<Keys>,
    key: u64,
    fork_guard: ForkGuard,
}

impl MemoryRegion for Region {
    fn key(&self) -> u64 {
        self.key
    }

    fn desc(&self) -> Desc {
        Desc::NONE
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        self.fork_guard.check_for(self)?;
        self.keys.bind(self.key, cntr, events)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that does not exist there.
        if self.key != NO_KEY && self.fork_guard.is_owner() {
            let mut table = self.keys.table();
            table.entries.remove(&self.key);
            let counters = table.counts.remove(self.key);
            drop(table);
            drop(counters);
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "region, key {:#x}", self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(access: MrAccess, key: u64) -> mr::Attr {
        let mut attr = mr::Attr::default();
        attr.access = access;
        attr.requested_key = key;
        attr
    }

    fn segment(addr: u64, len: usize, key: u64) -> RmaIov {
        RmaIov { addr, len, key }
    }

    #[test]
    fn a_region_over_all_addresses_grants_only_mapped_memory() {
        let keys = Arc::new(Keys::new(MrMode::VIRT_ADDR));
        let everything = IovMut::from_raw(std::ptr::null_mut(), usize::MAX);
        let both = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let region = keys.register(&[everything], &attr(both, 7)).unwrap();
        let mut memory = [0_u8; 64];
        let mapped = segment(memory.as_mut_ptr().expose_provenance() as u64, 64, 7);
        let constant = segment("constant".as_ptr().addr() as u64, 8, 7);
        for (segment, rights, denied) in [
            (&mapped, MrAccess::REMOTE_WRITE, None),
            (&constant, MrAccess::REMOTE_READ, None),
            (&constant, MrAccess::REMOTE_WRITE, Some(Denied::Unmapped)),
            (
                &segment(8, 8, 7),
                MrAccess::REMOTE_READ,
                Some(Denied::Unmapped),
            ),
        ] {
            let located = keys.regions().locate(segment, rights);
            assert_eq!(located.err(), denied, "{segment:?}");
        }
        drop(region);
    }

    #[test]
    fn key_rights_and_bounds_are_checked_in_this_order() {
        let keys = Arc::new(Keys::new(MrMode::empty()));
        let mut memory = [0_u8; 64];
        let iov = IovMut::new(&mut memory);
        let region = keys.register(&[iov], &attr(MrAccess::REMOTE_READ, 7));
        let table = [
            (segment(0, 64, 8), MrAccess::REMOTE_WRITE, Some(Denied::Key)),
            (
                segment(0, 65, 7),
                MrAccess::REMOTE_WRITE,
                Some(Denied::Right),
            ),
            (
                segment(0, 65, 7),
                MrAccess::REMOTE_READ,
                Some(Denied::Bounds),
            ),
            (
                segment(65, 0, 7),
                MrAccess::REMOTE_READ,
                Some(Denied::Bounds),
            ),
            (
                segment(u64::MAX, 2, 7),
                MrAccess::REMOTE_READ,
                Some(Denied::Bounds),
            ),
            (segment(60, 4, 7), MrAccess::REMOTE_READ, None),
            (segment(64, 0, 7), MrAccess::REMOTE_READ, None),
        ];
        for (segment, rights, denied) in table {
            let located = keys.regions().locate(&segment, rights);
            assert_eq!(located.err(), denied, "{segment:?}");
        }
        drop(region);
        let deregistered = keys
            .regions()
            .locate(&segment(0, 1, 7), MrAccess::REMOTE_READ);
        assert_eq!(deregistered.unwrap_err(), Denied::Key);
    }

    #[test]
    fn keys_are_the_applications_or_random_and_unique() {
        let mut memory = [0_u8; 8];
        let iov = IovMut::new(&mut memory);
        let own = Arc::new(Keys::new(MrMode::empty()));
        let first = own.register(&[iov], &attr(MrAccess::REMOTE_READ, 1));
        let second = own.register(&[iov], &attr(MrAccess::REMOTE_READ, 1));
        assert_eq!(
            (first.unwrap().key(), second.unwrap_err().errno()),
            (1, Errno::NoKey)
        );
        let provider = Arc::new(Keys::new(MrMode::BASIC));
        let keys = [(); 2].map(|()| provider.register(&[iov], &attr(MrAccess::REMOTE_READ, 1)));
        let [a, b] = keys.map(|region| region.unwrap().key());
        assert!(a != b && a != 1, "{a:x} {b:x}");
        let local = own.register(&[iov], &attr(MrAccess::READ, 1));
        assert_eq!(local.unwrap().key(), NO_KEY);
    }
}
