//! The registered regions of a domain, in a key table that peers map.
//!
//! The first registration with remote rights creates the table, which grows by chunks. Every peer
//! is sent a chunk (`announcements`) before a key of that chunk exists.
//!
//! Every access to a region ends before the application may reuse the region's memory. This process
//! accesses a region under the table's lock ([`Keys::regions`]), which the withdrawal of a region
//! takes, too. A peer that copies from a region checks afterwards that the entry is still valid,
//! and discards the copy if it is not.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::shared::SharedBytes;
use selvedge::{Counter, Errno, Error, MrAccess, MrMode, Result, mr};
use selvedge_kit::mr::{Bound, Counts, RegionCounters};
use selvedge_kit::presence;
use selvedge_kit::segments::RmaSegments;

use crate::connect::packet::encode_keys;
use crate::memory::announcements::Announcements;
use crate::peers::name::random;
use crate::smr::keys::{
    COUNTED, Chunk, Denied, KeyEntry, Kind, RIGHT_READ, RIGHT_WRITE, entries_of, locate_entry,
};

/// The key of a region that peers may not use (`FI_KEY_NOTAVAIL`).
pub(crate) const NO_KEY: u64 = u64::MAX;
/// The number of low bits of a provider's key that hold the entry's number; the other bits are
/// random. An application's key with the same low bits gets the entry of this number, too, if it is
/// free.
const ENTRY_BITS: u32 = 20;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;

/// The regions of a domain.
#[derive(Debug)]
pub(crate) struct Keys {
    mode: MrMode,
    table: RwLock<Table>,
    /// The number of chunks that are announced to peers, including one that is being announced.
    chunks: AtomicUsize,
    region_counters: Arc<RegionCounters>,
    /// Whether any region has a counter. Most programs have none and skip the lookup.
    has_counters: AtomicBool,
}

/// The key table, and this process's data about its entries.
#[derive(Debug, Default)]
struct Table {
    chunks: Vec<Chunk>,
    /// The registered regions, by entry number.
    slots: Vec<Option<Region>>,
    /// The numbers of free entries.
    free: BTreeSet<u32>,
    /// Entry numbers by key.
    by_key: FxHashMap<u64, u32>,
    /// The counters of regions.
    counts: Counts,
}

/// A registered region: its entry of the key table, and its address in this process.
#[derive(Clone, Copy, Debug)]
struct Region {
    entry: KeyEntry,
    /// The address of the first byte.
    address: usize,
}

/// A read guard of the regions: no region is withdrawn while the guard is held.
#[derive(Debug)]
pub(crate) struct Regions<'a>(RwLockReadGuard<'a, Table>);

impl Keys {
    /// Creates an empty table. `mode` determines how peers address memory, and whether the
    /// application or the provider chooses keys.
    pub(crate) fn new(mode: MrMode, region_counters: &Arc<RegionCounters>) -> Self {
        let basic = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
        let mode = match mode.contains(MrMode::BASIC) {
            true => mode | basic,
            false => mode,
        };
        Self {
            mode,
            table: RwLock::default(),
            chunks: AtomicUsize::new(0),
            region_counters: Arc::clone(region_counters),
            has_counters: AtomicBool::new(false),
        }
    }

    /// Returns the mode that determines how memory is addressed and keys are chosen.
    pub(crate) fn mode(&self) -> MrMode {
        self.mode
    }

    /// Returns the number of chunks that a peer needs before it may treat a key as unknown.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Acquire)
    }

    /// Returns the address or offset by which peers name the first byte of a region. This byte is
    /// at `address` in this process.
    pub(crate) fn remote_start(&self, address: u64, attr: &mr::Attr) -> u64 {
        match self.mode.contains(MrMode::VIRT_ADDR) {
            true => address,
            false => attr.offset,
        }
    }

    /// Locks the regions for an access. A caller holds the guard for one step of a copy at most.
    pub(crate) fn regions(&self) -> Regions<'_> {
        Regions(self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a finished access of a peer to the counters of the accessed regions. `access` tells
    /// whether the peer has read bytes, changed them, or both.
    #[inline]
    pub(crate) fn count(&self, segments: impl Iterator<Item = (u64, usize)>, access: MrAccess) {
        if self.has_counters.load(Ordering::Relaxed) {
            let events = self.regions().0.counts.events_of(segments, access);
            events.count();
        }
    }

    /// As [`Self::count`], for a write.
    #[inline]
    pub(crate) fn count_write(&self, segments: &[RmaIov]) {
        let segments = segments.iter().map(|segment| (segment.key, segment.len));
        self.count(segments, MrAccess::REMOTE_WRITE);
    }

    /// As [`Self::count`], for a read.
    #[inline]
    pub(crate) fn count_read(&self, segments: &RmaSegments) {
        let segments = segments
            .all()
            .iter()
            .map(|segment| (segment.key, segment.len));
        self.count(segments, MrAccess::REMOTE_READ);
    }

    /// Adds a region under the key in `entry`, or under a new key where the provider chooses keys.
    /// The region's first byte is at `address` in this process. Returns the key and the entry's
    /// number.
    ///
    /// # Errors
    /// [`Errno::NoKey`] when the key is taken; the system's error when memory for the table is
    /// short.
    pub(crate) fn insert(
        &self,
        entry: KeyEntry,
        address: usize,
        announcements: &Announcements,
    ) -> Result<(u64, u32), Error> {
        let mut table = self.table();
        self.ensure_free_entry(&mut table, announcements)?;
        table.insert(entry, address, self.mode.contains(MrMode::PROV_KEY))
    }

    /// Withdraws a region.
    pub(crate) fn remove(&self, number: u32) {
        let mut table = self.table();
        let counters = table.remove(number);
        drop(table);
        drop(counters);
    }

    /// Binds a counter to a region, and marks the entry as counted: peers then send commands
    /// instead of direct accesses.
    pub(crate) fn bind(
        &self,
        number: u32,
        cntr: &Arc<dyn Counter>,
        access: MrAccess,
    ) -> Result<(), Error> {
        let cntr = self.region_counters.add_counter(cntr)?;
        let mut table = self.table();
        let table = &mut *table;
        let Some(region) = &mut table.slots[number as usize] else {
            return Ok(());
        };
        table.counts.bind(region.entry.key, &cntr, access)?;
        self.has_counters.store(true, Ordering::Relaxed);
        region.entry.rights |= COUNTED;
        let (chunk, index) = locate_entry(number as usize);
        table.chunks[chunk].amend(index, &region.entry);
        Ok(())
    }

    fn table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds and announces a new chunk if no entry is free.
    fn ensure_free_entry(
        &self,
        table: &mut Table,
        announcements: &Announcements,
    ) -> Result<(), Error> {
        if !table.free.is_empty() {
            return Ok(());
        }
        let number = table.chunks.len();
        let fd = table.add_chunk()?;
        self.chunks.store(number + 1, Ordering::Release);
        announcements.publish(encode_keys(number as u32), Some(fd));
        Ok(())
    }
}

impl Table {
    fn insert(
        &mut self,
        mut entry: KeyEntry,
        address: usize,
        has_provider_key: bool,
    ) -> Result<(u64, u32), Error> {
        let number = match has_provider_key {
            true => self.free.first().copied(),
            false => self.find_free_entry(entry.key)?,
        };
        let is_full = || Error::new(Errno::NoMem, "the key table has no free entry");
        let number = number.ok_or_else(is_full)?;
        if has_provider_key {
            entry.key = random() << ENTRY_BITS | u64::from(number);
        }
        self.free.remove(&number);
        self.by_key.insert(entry.key, number);
        self.slots[number as usize] = Some(Region { entry, address });
        let (chunk, index) = locate_entry(number as usize);
        self.chunks[chunk].publish(index, &entry);
        Ok((entry.key, number))
    }

    /// Finds a free entry for an application's key: the entry of the same number if it is free.
    ///
    /// # Errors
    /// [`Errno::NoKey`] when the key is taken.
    fn find_free_entry(&self, key: u64) -> Result<Option<u32>, Error> {
        if self.by_key.contains_key(&key) || key == NO_KEY {
            let message = format!("the key {key:#x} is taken: choose another");
            return Err(Error::new(Errno::NoKey, message));
        }
        let number = (key & ENTRY_MASK) as u32;
        let number = self.free.get(&number).or_else(|| self.free.first());
        Ok(number.copied())
    }

    /// Adds a chunk. Returns a descriptor of its memory.
    fn add_chunk(&mut self) -> Result<OwnedFd, Error> {
        let number = self.chunks.len();
        let chunk = Chunk::create(number)?;
        let fd = chunk.memory().fd().try_clone_to_owned().map_err(|cause| {
            let errno = cause.raw_os_error().map_or(Errno::MFile, Errno::from_raw);
            Error::new(errno, "sharing a chunk of keys").because(cause)
        })?;
        self.chunks.push(chunk);
        let first = self.slots.len() as u32;
        self.slots
            .resize(self.slots.len() + entries_of(number), None);
        self.free.extend(first..self.slots.len() as u32);
        Ok(fd)
    }

    /// Withdraws an entry. Returns the counters of its region, which the caller drops after it has
    /// released the lock.
    fn remove(&mut self, number: u32) -> Option<Bound> {
        let (chunk, index) = locate_entry(number as usize);
        self.chunks[chunk].withdraw(index);
        self.free.insert(number);
        let region = self.slots[number as usize].take()?;
        self.by_key.remove(&region.entry.key);
        self.counts.remove(region.entry.key)
    }

    /// Finds the region that has a key.
    fn find(&self, key: u64) -> Option<&Region> {
        let hint = self.slots.get(entry_hint(key));
        let hint = hint.and_then(|region| region.as_ref().filter(|region| region.entry.key == key));
        hint.or_else(|| {
            let number = *self.by_key.get(&key)?;
            self.slots[number as usize].as_ref()
        })
    }
}

impl Regions<'_> {
    /// Returns the memory of a segment that a peer accesses with `rights`.
    ///
    /// # Errors
    /// The reason for the denial.
    pub(crate) fn locate(&self, segment: &RmaIov, rights: u32) -> Result<SharedBytes, Denied> {
        let (region, offset) = self.find(segment, rights)?;
        if region.entry.kind != Kind::Whole {
            let len = usize::try_from(region.entry.len).map_err(|_| Denied::Bounds)?;
            return Ok(shared_bytes(region.address, len).part(offset, segment.len));
        }
        let is_mapped = match rights & RIGHT_WRITE {
            0 => presence::is_readable,
            _ => presence::is_writable,
        };
        let address = region.address + offset;
        match is_mapped(address, segment.len) {
            true => Ok(shared_bytes(address, segment.len)),
            false => Err(Denied::Unmapped),
        }
    }

    /// Checks that a peer may access a segment with `rights`. Does not find unmapped addresses of a
    /// region over the whole address space; [`Self::locate`] finds them.
    ///
    /// # Errors
    /// The reason for the denial.
    pub(crate) fn allow(&self, segment: &RmaIov, rights: u32) -> Result<(), Denied> {
        self.find(segment, rights).map(drop)
    }

    /// Finds the region that holds a segment, and the segment's offset in the region.
    #[inline]
    fn find(&self, segment: &RmaIov, rights: u32) -> Result<(&Region, usize), Denied> {
        let region = self.0.find(segment.key).ok_or(Denied::Key)?;
        let entry = &region.entry;
        let memory = entry.locate(segment.addr, segment.len as u64, rights)?;
        let offset = usize::try_from(memory - entry.memory).map_err(|_| Denied::Bounds)?;
        Ok((region, offset))
    }
}

#[expect(unsafe_code, reason = "registration is the promise about the memory")]
fn shared_bytes(address: usize, len: usize) -> SharedBytes {
    let first = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller of `Domain::reg` promised that the region's bytes are valid until the
    // region is dropped, and that they are accessed by granules if the region has remote rights.
    // Dropping the region waits for the lock that `Regions` holds. The bytes here are the region's
    // bytes or, for a region over the whole address space, bytes that `locate` has found mapped.
    unsafe { SharedBytes::new(first, len) }
}

/// Converts the rights of peers to the key table's encoding.
pub(crate) fn rights(access: MrAccess) -> u32 {
    let right = |flag, right| if access.contains(flag) { right } else { 0 };
    right(MrAccess::REMOTE_READ, RIGHT_READ) | right(MrAccess::REMOTE_WRITE, RIGHT_WRITE)
}

/// Returns the number of the entry that a key probably has.
pub(crate) const fn entry_hint(key: u64) -> usize {
    (key & ENTRY_MASK) as usize
}

#[cfg(test)]
mod tests {
    use selvedge::{Info, IovMut};
    use selvedge_kit::mr::ObjectSharing;
    use selvedge_kit::{DomainId, FabricId};

    use super::*;
    use crate::memory::mr::register;
    use crate::provider::shared::Shared;

    fn attr(access: MrAccess, key: u64) -> mr::Attr {
        let mut attr = mr::Attr::default();
        attr.access = access;
        attr.requested_key = key;
        attr
    }

    fn segment(key: u64, addr: u64, len: usize) -> RmaIov {
        RmaIov { addr, len, key }
    }

    fn domain(mode: MrMode) -> Arc<Shared> {
        let fabric = FabricId::of(&Info::default());
        let domain = DomainId::new("a domain", fabric);
        let region_counters = Arc::new(RegionCounters::of(&domain, ObjectSharing::AcrossGroups));
        Arc::new(Shared::new(mode, &region_counters))
    }

    /// Leaks `len` bytes. Returns them and their address.
    fn leak_memory(len: usize) -> (IovMut, usize) {
        let bytes = Box::leak(vec![0_u8; len].into_boxed_slice());
        let iov = IovMut::new(bytes);
        (iov, iov.base.addr())
    }

    fn locate(keys: &Arc<Shared>, segment: &RmaIov, rights: u32) -> Result<usize, Denied> {
        let found = keys.keys.regions().locate(segment, rights);
        found.map(|shared| shared.as_ptr().addr())
    }

    #[test]
    fn a_region_is_addressed_by_offset_or_by_address() {
        let (iov, first) = leak_memory(64);
        for (mode, start) in [
            (MrMode::empty(), 0),
            (MrMode::VIRT_ADDR, first as u64),
            (MrMode::BASIC, first as u64),
        ] {
            let keys = domain(mode);
            let region = register(&keys, &[iov], &attr(MrAccess::REMOTE_READ, 5)).unwrap();
            let inside = segment(region.key(), start + 60, 4);
            assert_eq!(locate(&keys, &inside, RIGHT_READ), Ok(first + 60));
            let beyond = segment(region.key(), start + 60, 5);
            assert_eq!(locate(&keys, &beyond, RIGHT_READ), Err(Denied::Bounds));
            assert_eq!(locate(&keys, &inside, RIGHT_WRITE), Err(Denied::Rights));
        }
    }

    #[test]
    fn an_application_key_belongs_to_one_region_at_a_time() {
        let keys = domain(MrMode::empty());
        let (iov, _) = leak_memory(64);
        let reg = |key| register(&keys, &[iov], &attr(MrAccess::REMOTE_WRITE, key));
        for key in [0, 1, 7, 1 << 20, 1 << 40, u64::MAX - 1] {
            let region = reg(key).unwrap();
            assert_eq!(region.key(), key);
            let taken = reg(key).unwrap_err();
            assert_eq!(taken.errno(), Errno::NoKey);
            assert!(taken.message().contains(&format!("{key:#x}")), "{taken}");
            drop(region);
            assert!(locate(&keys, &segment(key, 0, 1), RIGHT_WRITE).is_err());
            assert_eq!(reg(key).unwrap().key(), key);
        }
    }

    #[test]
    fn provider_keys_are_never_reused() {
        let keys = domain(MrMode::PROV_KEY);
        let (iov, _) = leak_memory(64);
        let mut seen = BTreeSet::new();
        for _ in 0..1000 {
            let region = register(&keys, &[iov], &attr(MrAccess::REMOTE_WRITE, 3)).unwrap();
            assert!(
                seen.insert(region.key()),
                "the key is reused with its entry"
            );
        }
    }

    #[test]
    fn the_key_table_grows_on_demand() {
        let keys = domain(MrMode::empty());
        let (iov, first) = leak_memory(1000);
        let regions: Vec<_> = (0..1000)
            .map(|key| register(&keys, &[iov], &attr(MrAccess::REMOTE_WRITE, 3 * key)))
            .collect();
        for key in 0..1000 {
            let inside = segment(3 * key, key, 1);
            assert_eq!(
                locate(&keys, &inside, RIGHT_WRITE),
                Ok(first + key as usize)
            );
        }
        assert_eq!(keys.keys.regions().0.chunks.len(), 5);
        drop(regions);
        assert!(keys.keys.regions().0.by_key.is_empty());
    }

    #[test]
    #[expect(unsafe_code, reason = "forks")]
    fn a_child_that_drops_its_copies_withdraws_nothing() {
        let keys = domain(MrMode::empty());
        let (iov, _) = leak_memory(64);
        let region = register(&keys, &[iov], &attr(MrAccess::REMOTE_READ, 5)).unwrap();
        let fd = keys.keys.regions().0.chunks[0]
            .memory()
            .fd()
            .try_clone_to_owned();
        let peer = crate::smr::keys::PeerChunk::attach(fd.unwrap(), 0).unwrap();
        // SAFETY: the child drops its own copies and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop((region, keys));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) };
        }
        nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None).unwrap();
        assert!(peer.read(5).is_some());
        drop(region);
        assert!(peer.read(5).is_none());
    }

    #[test]
    fn regions_without_rights_for_peers_share_no_keys_and_make_no_table() {
        let keys = domain(MrMode::empty());
        let (iov, _) = leak_memory(64);
        let local = MrAccess::READ | MrAccess::SEND;
        let first = register(&keys, &[iov], &attr(local, 1)).unwrap();
        let second = register(&keys, &[iov], &attr(local, 1)).unwrap();
        assert_eq!((first.key(), second.key()), (NO_KEY, NO_KEY));
        assert!(keys.keys.regions().0.chunks.is_empty());
    }

    #[test]
    fn register_refuses_invalid_memory_lists_by_value() {
        let keys = domain(MrMode::empty());
        let (iov, _) = leak_memory(64);
        let wraps = IovMut::from_raw(std::ptr::without_provenance_mut(usize::MAX - 4), 8);
        for (memory, named) in [
            (&[][..], "0 segments"),
            (&[iov, iov][..], "2 segments"),
            (&[wraps][..], "8 bytes"),
        ] {
            let refused = register(&keys, memory, &attr(MrAccess::REMOTE_READ, 1));
            let refused = refused.unwrap_err();
            assert_eq!(refused.errno(), Errno::Inval);
            assert!(refused.message().contains(named), "{refused}");
        }
    }

    #[test]
    fn the_whole_address_space_is_a_region() {
        let keys = domain(MrMode::empty());
        let all = IovMut::from_raw(std::ptr::null_mut(), usize::MAX);
        let region = register(&keys, &[all], &attr(MrAccess::REMOTE_READ, 1)).unwrap();
        let (_, first) = leak_memory(64);
        let inside = segment(region.key(), first as u64, 64);
        assert_eq!(locate(&keys, &inside, RIGHT_READ), Ok(first));
    }
}
