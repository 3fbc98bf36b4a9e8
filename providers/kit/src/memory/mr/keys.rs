//! The key table of a domain, and the handles to its regions.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use selvedge::rma::RmaIov;
use selvedge::shared::SharedBytes;
use selvedge::{Counter, Desc, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, mr};

use super::Denied;
use super::counts::RegionCounters;
use super::table::{Entry, NO_KEY, Publication, Table};
use crate::fork_guard::ForkGuard;
use crate::presence;

/// The number of segments of a registered region.
pub const MR_IOV_LIMIT: usize = 1;
const REMOTE: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The regions of a domain that peers may access, by key. `P` is the place where peers read them.
#[derive(Debug)]
pub struct Keys<P: Publication = ()> {
    mode: MrMode,
    table: RwLock<Table<P>>,
    /// The counters that regions may be bound to, if the provider supports them.
    region_counters: Option<Arc<RegionCounters>>,
    /// Whether a counter has ever been bound to a region. In most programs none has, and an access
    /// checks only this flag.
    are_counted: AtomicBool,
}

/// A lock on the regions of a domain, held by code that accesses their memory. No region is
/// registered or deregistered meanwhile.
#[derive(Debug)]
pub struct Regions<'a, P: Publication = ()>(RwLockReadGuard<'a, Table<P>>);

impl Keys {
    /// Makes an empty table. `mode` says how peers address memory and who chooses keys.
    pub fn new(mode: MrMode) -> Self {
        Self::published(mode, ())
    }
}

impl<P: Publication> Keys<P> {
    /// As [`Keys::new`], for a table whose entries peers read.
    pub fn published(mode: MrMode, publication: P) -> Self {
        let basic = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
        let mode = if mode.contains(MrMode::BASIC) {
            mode | basic
        } else {
            mode
        };
        Self {
            mode,
            table: RwLock::new(Table::new(publication)),
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

    /// Returns the mode of [`Keys::new`], with the modes that [`MrMode::BASIC`] implies.
    pub const fn mode(&self) -> MrMode {
        self.mode
    }

    /// Locks the regions for accesses to their memory. The caller holds the lock for one step of a
    /// copy at most.
    #[inline]
    pub fn regions(&self) -> Regions<'_, P> {
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

    /// As [`Self::count`], for the segments of an operation.
    #[inline]
    pub fn count_segments(&self, segments: &[RmaIov], access: MrAccess) {
        let segments = segments.iter().map(|segment| (segment.key, segment.len));
        self.count(segments, access);
    }

    fn bind(
        &self,
        (key, number): (u64, Option<u32>),
        cntr: &Arc<dyn Counter>,
        events: MrAccess,
    ) -> Result<(), Error> {
        let Some(region_counters) = &self.region_counters else {
            let message =
                format!("region of key {key:#x}: this provider has no counters of regions");
            return Err(Error::new(Errno::NoSys, message));
        };
        let Some(number) = number else {
            let message = "a counter for a region without remote rights: peers cannot access it";
            return Err(Error::new(Errno::Inval, message));
        };
        let cntr = region_counters.add_counter(cntr)?;
        let mut table = self.table();
        table.counts.bind(key, &cntr, events)?;
        self.are_counted.store(true, Ordering::Relaxed);
        table.mark_counted(number);
        Ok(())
    }

    /// Returns the address or offset by which peers name the first byte of a region, which is at
    /// `first` in this process.
    pub fn remote_start(&self, first: usize, attr: &mr::Attr) -> u64 {
        if self.mode.contains(MrMode::VIRT_ADDR) {
            first as u64
        } else {
            attr.offset
        }
    }

    /// Registers memory for [`selvedge::Domain::reg`], whose caller has made the promise about the
    /// memory.
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] for memory of a device; [`Errno::NoKey`] if the requested key is in
    /// use; [`Errno::Inval`] unless `memory` is one segment within the address space.
    pub fn register(
        self: &Arc<Self>,
        memory: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        attr.check_system_memory("this provider")?;
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
        self.add(Entry {
            key: attr.requested_key,
            start: self.remote_start(first, attr),
            len: segment.len,
            first,
            access: attr.access,
            is_counted: false,
            details: P::Details::default(),
        })
    }

    /// Adds a region under the key in `entry`, or under a new key where the provider chooses keys.
    /// A region without remote rights gets no key.
    ///
    /// # Errors
    /// [`Errno::NoKey`] if the key is in use; the system's error, if there is no memory for the
    /// table.
    pub fn add(self: &Arc<Self>, entry: Entry<P::Details>) -> Result<Arc<dyn MemoryRegion>, Error> {
        let (mut key, mut number) = (NO_KEY, None);
        if entry.access.intersects(REMOTE) {
            let has_provider_key = self.mode.contains(MrMode::PROV_KEY);
            let added = self.table().insert(entry, has_provider_key)?;
            (key, number) = (added.0, Some(added.1));
        }
        Ok(Arc::new(Region {
            keys: Arc::clone(self),
            key,
            number,
            fork_guard: ForkGuard::current(),
        }))
    }

    fn table(&self) -> RwLockWriteGuard<'_, Table<P>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Publication> Regions<'_, P> {
    /// Returns the memory of `segment`, which a peer wants to access with `rights`.
    ///
    /// # Errors
    /// The reason why the access is denied.
    #[inline]
    pub fn locate(&self, segment: &RmaIov, rights: MrAccess) -> Result<SharedBytes, Denied> {
        let (entry, offset) = self.find(segment, rights)?;
        if !entry.is_whole() {
            return Ok(shared(entry.first, entry.len).part(offset, segment.len));
        }
        let first = entry.first + offset;
        if is_accessible(first, segment.len, rights) {
            Ok(shared(first, segment.len))
        } else {
            Err(Denied::Unmapped)
        }
    }

    /// Checks that a peer may access a segment with `rights`. Does not find unmapped addresses of a
    /// region over all addresses; [`Self::locate`] finds them.
    ///
    /// # Errors
    /// The reason why the access is denied.
    pub fn allow(&self, segment: &RmaIov, rights: MrAccess) -> Result<(), Denied> {
        self.find(segment, rights).map(drop)
    }

    /// The place where peers read the entries.
    pub fn publication(&self) -> &P {
        &self.0.publication
    }

    /// Finds the region that holds a segment, and the segment's offset in the region.
    #[inline]
    fn find(
        &self,
        segment: &RmaIov,
        rights: MrAccess,
    ) -> Result<(&Entry<P::Details>, usize), Denied> {
        let entry = self.0.find(segment.key).ok_or(Denied::Key)?;
        Ok((entry, entry.locate(segment, rights)?))
    }
}

fn is_accessible(first: usize, len: usize, rights: MrAccess) -> bool {
    if rights.contains(MrAccess::REMOTE_WRITE) {
        presence::is_writable(first, len)
    } else {
        presence::is_readable(first, len)
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

/// A registered region.
struct Region<P: Publication> {
    keys: Arc<Keys<P>>,
    key: u64,
    /// The number of the entry; `None` for a region without remote rights.
    number: Option<u32>,
    fork_guard: ForkGuard,
}

impl<P: Publication> MemoryRegion for Region<P> {
    fn key(&self) -> u64 {
        self.key
    }

    fn desc(&self) -> Desc {
        Desc::NONE
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        self.fork_guard.check_for(self)?;
        self.keys.bind((self.key, self.number), cntr, events)
    }
}

impl<P: Publication> Drop for Region<P> {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that does not exist there.
        if let Some(number) = self.number.filter(|_| self.fork_guard.is_owner()) {
            let mut table = self.keys.table();
            let counters = table.remove(number);
            drop(table);
            drop(counters);
        }
    }
}

impl<P: Publication> fmt::Debug for Region<P> {
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
    fn memory_of_a_device_is_refused_with_interface_and_device() {
        let keys = Arc::new(Keys::new(MrMode::empty()));
        let mut memory = [0_u8; 8];
        for iface in mr::HmemIface::ALL {
            let mut attr = attr(MrAccess::SEND, 0);
            (attr.iface, attr.device) = (*iface, 2);
            let registered = keys.register(&[IovMut::new(&mut memory)], &attr);
            if *iface == mr::HmemIface::System {
                registered.unwrap();
                continue;
            }
            let refused = registered.unwrap_err();
            assert_eq!(refused.errno(), Errno::OpNotSupp);
            let text = refused.to_string();
            assert!(
                text.contains(iface.text()) && text.contains("device 2"),
                "{text}"
            );
        }
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
                Some(Denied::Rights),
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
