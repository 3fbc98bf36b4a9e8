//! The chunks of a domain's key table, which peers map.
//!
//! The first registration with remote rights creates a chunk, and the table grows by chunks. Every
//! peer is sent a chunk (`announcements`) before a key of that chunk exists.
//!
//! Every access to a region ends before the application may reuse the region's memory. This process
//! accesses a region under the table's lock ([`Keys::regions`]), which the withdrawal of a region
//! takes, too. A peer that copies from a region checks afterwards that the entry is still valid,
//! and discards the copy if it is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selvedge::{Errno, Error, MrAccess};
use selvedge_kit::mr::{Entry, Keys, Publication};

use crate::connect::packet::encode_keys;
use crate::memory::announcements::Announcements;
use crate::smr::keys::{
    COUNTED, Chunk, KeyEntry, Kind, RIGHT_READ, RIGHT_WRITE, entries_of, locate_entry,
};

/// The chunks of a domain's key table. Each entry has the number of the block that holds special
/// memory; `None` for other memory.
#[derive(Debug)]
pub(crate) struct KeyChunks {
    chunks: Vec<Chunk>,
    /// The number of chunks that are announced to peers, including one that is being announced.
    announced: Arc<AtomicUsize>,
    announcements: Arc<Announcements>,
}

/// The regions of a domain.
pub(crate) type RegionKeys = Keys<KeyChunks>;

impl KeyChunks {
    pub(crate) fn new(announced: &Arc<AtomicUsize>, announcements: &Arc<Announcements>) -> Self {
        Self {
            chunks: Vec::new(),
            announced: Arc::clone(announced),
            announcements: Arc::clone(announcements),
        }
    }
}

impl Publication for KeyChunks {
    type Details = Option<u64>;

    /// Adds and announces a chunk.
    fn grow(&mut self, _present: usize) -> Result<usize, Error> {
        let number = self.chunks.len();
        let chunk = Chunk::create(number)?;
        let fd = chunk.memory().fd().try_clone_to_owned().map_err(|cause| {
            let errno = cause.raw_os_error().map_or(Errno::MFile, Errno::from_raw);
            Error::new(errno, "sharing a chunk of keys").because(cause)
        })?;
        self.chunks.push(chunk);
        self.announced.store(number + 1, Ordering::Release);
        let packet = encode_keys(number as u32);
        self.announcements.publish(packet, Some(fd));
        Ok(entries_of(number))
    }

    fn publish(&mut self, number: usize, entry: &Entry<Option<u64>>) {
        let (chunk, index) = locate_entry(number);
        self.chunks[chunk].publish(index, &key_entry(entry));
    }

    fn amend(&mut self, number: usize, entry: &Entry<Option<u64>>) {
        let (chunk, index) = locate_entry(number);
        self.chunks[chunk].amend(index, &key_entry(entry));
    }

    fn withdraw(&mut self, number: usize) {
        let (chunk, index) = locate_entry(number);
        self.chunks[chunk].withdraw(index);
    }
}

/// Converts an entry to the form that peers read.
fn key_entry(entry: &Entry<Option<u64>>) -> KeyEntry {
    KeyEntry {
        key: entry.key,
        start: entry.start,
        len: entry.len as u64,
        rights: rights(entry.access) | if entry.is_counted { COUNTED } else { 0 },
        kind: match entry.details {
            Some(_) => Kind::Special,
            None if entry.is_whole() => Kind::Whole,
            None => Kind::Plain,
        },
        memory: entry.first as u64,
        block: entry.details.unwrap_or(0),
    }
}

/// Converts the rights of peers to the key table's encoding.
pub(crate) fn rights(access: MrAccess) -> u32 {
    let right = |flag, right| if access.contains(flag) { right } else { 0 };
    right(MrAccess::REMOTE_READ, RIGHT_READ) | right(MrAccess::REMOTE_WRITE, RIGHT_WRITE)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use selvedge::rma::RmaIov;
    use selvedge::{Info, IovMut, MemoryRegion, MrMode, mr};
    use selvedge_kit::mr::{Denied, ObjectSharing, RegionCounters};
    use selvedge_kit::{DomainId, FabricId};

    use super::*;
    use crate::provider::shared::Shared;

    fn register(
        domain: &Arc<Shared>,
        memory: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        domain.keys.register(memory, attr)
    }

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

    fn locate(keys: &Arc<Shared>, segment: &RmaIov, rights: MrAccess) -> Result<usize, Denied> {
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
            assert_eq!(
                locate(&keys, &inside, MrAccess::REMOTE_READ),
                Ok(first + 60)
            );
            let beyond = segment(region.key(), start + 60, 5);
            assert_eq!(
                locate(&keys, &beyond, MrAccess::REMOTE_READ),
                Err(Denied::Bounds)
            );
            assert_eq!(
                locate(&keys, &inside, MrAccess::REMOTE_WRITE),
                Err(Denied::Rights)
            );
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
            assert!(locate(&keys, &segment(key, 0, 1), MrAccess::REMOTE_WRITE).is_err());
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
                locate(&keys, &inside, MrAccess::REMOTE_WRITE),
                Ok(first + key as usize)
            );
        }
        assert_eq!(keys.keys.regions().publication().chunks.len(), 5);
        drop(regions);
        let withdrawn = locate(&keys, &segment(0, 0, 1), MrAccess::REMOTE_WRITE);
        assert_eq!(withdrawn, Err(Denied::Key));
    }

    #[test]
    #[expect(unsafe_code, reason = "forks")]
    fn a_child_that_drops_its_copies_withdraws_nothing() {
        let keys = domain(MrMode::empty());
        let (iov, _) = leak_memory(64);
        let region = register(&keys, &[iov], &attr(MrAccess::REMOTE_READ, 5)).unwrap();
        let fd = keys.keys.regions().publication().chunks[0]
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
        assert_eq!((first.key(), second.key()), (u64::MAX, u64::MAX));
        assert!(keys.keys.regions().publication().chunks.is_empty());
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
        assert_eq!(locate(&keys, &inside, MrAccess::REMOTE_READ), Ok(first));
    }
}
