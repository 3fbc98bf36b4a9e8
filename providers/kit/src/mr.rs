//! Registered memory by key, for providers whose peers ask this process for it.
//!
//! Whoever uses a region's memory holds [`Regions`] meanwhile, and withdrawal waits for that. What
//! peers are told of a region is the provider's part: nothing, mostly.

mod counts;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::shared::SharedBytes;
use selvedge::{Counter, Desc, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, mr, presence};

use crate::fork_guard::ForkGuard;

pub use counts::{AccessEvents, Bound, Counts, ObjectSharing, RegionCounters};

/// Pieces of a registered region.
pub const MR_IOV_LIMIT: usize = 1;
/// The key of a region that peers may not use (`FI_KEY_NOTAVAIL`).
const NO_KEY: u64 = u64::MAX;
const REMOTE: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The regions of a domain.
#[derive(Debug)]
pub struct Keys {
    mode: MrMode,
    table: RwLock<Table>,
    /// Where regions have counters.
    region_counters: Option<Arc<RegionCounters>>,
    /// Whether any region has one: most programs have none, and look no further.
    are_counted: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    entries: FxHashMap<u64, Entry>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// What peers name the first byte by.
    start: u64,
    len: usize,
    /// Its address.
    first: usize,
    access: MrAccess,
}

/// The regions, looked at by somebody who uses their memory: none is withdrawn meanwhile.
#[derive(Debug)]
pub struct Regions<'a>(RwLockReadGuard<'a, Table>);

/// Why memory may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Nobody has the key.
    Key,
    /// The region does not grant the right.
    Right,
    /// The bytes are not all inside.
    Bounds,
    /// They are, and the region is over all addresses, but there is no such memory.
    Nowhere,
}

impl Denied {
    /// The number that an error entry has.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Key => Errno::KeyRejected,
            Self::Right => Errno::Acces,
            Self::Bounds | Self::Nowhere => Errno::Fault,
        }
    }
}

impl Keys {
    /// An empty table; `mode` says how the application wants to address and name memory.
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

    /// The same, of a domain whose regions have counters.
    #[must_use]
    pub fn with_counters(mut self, region_counters: &Arc<RegionCounters>) -> Self {
        self.region_counters = Some(Arc::clone(region_counters));
        self
    }

    /// How memory is addressed and named.
    pub const fn mode(&self) -> MrMode {
        self.mode
    }

    /// The regions, to use their memory with. Held no longer than a step of a copy takes.
    pub fn regions(&self) -> Regions<'_> {
        Regions(self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts an access of a peer's, which is over, for the regions that want it: `what` is whether it
    /// has brought bytes back, changed them, or both.
    #[inline]
    pub fn count(&self, segments: impl Iterator<Item = (u64, usize)>, access: MrAccess) {
        if self.are_counted.load(Ordering::Relaxed) {
            self.regions().0.counts.events_of(segments, access).count();
        }
    }

    fn bind(&self, key: u64, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        let Some(region_counters) = &self.region_counters else {
            let what = format!("the region of key {key:#x}: nobody counts what peers do with it");
            return Err(Error::new(Errno::NoSys, what));
        };
        if key == NO_KEY {
            let what = "a counter for a region that peers may not use";
            return Err(Error::new(Errno::Inval, what));
        }
        let cntr = region_counters.add_counter(cntr)?;
        self.table().counts.bind(key, &cntr, what)?;
        self.are_counted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Registers memory: what [`selvedge::Domain::reg`] is for, whose caller has promised what has to
    /// be promised about it.
    ///
    /// # Errors
    /// [`Errno::NoKey`] when the wanted key is taken, [`Errno::Inval`] for a list that is no region.
    pub fn register(
        self: &Arc<Self>,
        memory: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let &[piece] = memory else {
            let count = memory.len();
            let what = format!("a region of {count} pieces; there may be {MR_IOV_LIMIT}");
            return Err(Error::new(Errno::Inval, what));
        };
        let first = piece.base.expose_provenance();
        if first.checked_add(piece.len).is_none() {
            let what = format!("a region of {} bytes at {first:#x}", piece.len);
            return Err(Error::new(Errno::Inval, what));
        }
        let entry = Entry {
            start: match self.mode.contains(MrMode::VIRT_ADDR) {
                true => first as u64,
                false => attr.offset,
            },
            len: piece.len,
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

    fn add(&self, entry: Entry, wanted: u64) -> Result<u64, Error> {
        let mut table = self.table();
        let by_provider = self.mode.contains(MrMode::PROV_KEY);
        let mut key = if by_provider { random() } else { wanted };
        while by_provider && (key == NO_KEY || table.entries.contains_key(&key)) {
            key = random();
        }
        if key == NO_KEY || table.entries.contains_key(&key) {
            let what = format!("the key {key:#x} is taken");
            return Err(Error::new(Errno::NoKey, what));
        }
        table.entries.insert(key, entry);
        Ok(key)
    }

    fn table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Regions<'_> {
    /// The memory that a peer names and wants to use with these rights.
    ///
    /// # Errors
    /// Why it may not.
    pub fn locate(&self, piece: &RmaIov, rights: MrAccess) -> Result<SharedBytes, Denied> {
        let entry = self.0.entries.get(&piece.key).ok_or(Denied::Key)?;
        if !entry.access.contains(rights) {
            return Err(Denied::Right);
        }
        let offset = piece.addr.checked_sub(entry.start).ok_or(Denied::Bounds)?;
        let offset = usize::try_from(offset).map_err(|_| Denied::Bounds)?;
        if offset > entry.len || piece.len > entry.len - offset {
            return Err(Denied::Bounds);
        }
        if !entry.is_whole() {
            return Ok(shared(entry.first, entry.len).part(offset, piece.len));
        }
        let first = entry.first + offset;
        match is_there(first, piece.len, rights) {
            true => Ok(shared(first, piece.len)),
            false => Err(Denied::Nowhere),
        }
    }
}

impl Entry {
    /// Whether it is over all addresses, of which most are none.
    const fn is_whole(&self) -> bool {
        self.first == 0 && self.len == usize::MAX
    }
}

fn is_there(first: usize, len: usize, rights: MrAccess) -> bool {
    match rights.contains(MrAccess::REMOTE_WRITE) {
        true => presence::is_writable(first, len),
        false => presence::is_readable(first, len),
    }
}

#[expect(unsafe_code, reason = "registration is the promise about the memory")]
fn shared(first: usize, len: usize) -> SharedBytes {
    let first = std::ptr::with_exposed_provenance_mut(first);
    // SAFETY: the caller of `Domain::reg` promised that the region's bytes are valid, and with remote
    // rights accessed by granules, until the region is dropped, which waits for the lock that
    // `Regions` holds. These are the region's bytes, or, where that is over all addresses, bytes that
    // `locate` has found.
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

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        self.fork_guard.check_for(self)?;
        self.keys.bind(self.key, cntr, what)
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

    fn piece(addr: u64, len: usize, key: u64) -> RmaIov {
        RmaIov { addr, len, key }
    }

    #[test]
    fn a_region_over_all_addresses_has_only_memory_that_is_there() {
        let keys = Arc::new(Keys::new(MrMode::VIRT_ADDR));
        let everything = IovMut::from_raw(std::ptr::null_mut(), usize::MAX);
        let both = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let region = keys.register(&[everything], &attr(both, 7)).unwrap();
        let mut memory = [0_u8; 64];
        let here = piece(memory.as_mut_ptr().expose_provenance() as u64, 64, 7);
        let constant = piece("constant".as_ptr().addr() as u64, 8, 7);
        for (piece, rights, denied) in [
            (&here, MrAccess::REMOTE_WRITE, None),
            (&constant, MrAccess::REMOTE_READ, None),
            (&constant, MrAccess::REMOTE_WRITE, Some(Denied::Nowhere)),
            (
                &piece(8, 8, 7),
                MrAccess::REMOTE_READ,
                Some(Denied::Nowhere),
            ),
        ] {
            let located = keys.regions().locate(piece, rights);
            assert_eq!(located.err(), denied, "{piece:?}");
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
            (piece(0, 64, 8), MrAccess::REMOTE_WRITE, Some(Denied::Key)),
            (piece(0, 65, 7), MrAccess::REMOTE_WRITE, Some(Denied::Right)),
            (piece(0, 65, 7), MrAccess::REMOTE_READ, Some(Denied::Bounds)),
            (piece(65, 0, 7), MrAccess::REMOTE_READ, Some(Denied::Bounds)),
            (
                piece(u64::MAX, 2, 7),
                MrAccess::REMOTE_READ,
                Some(Denied::Bounds),
            ),
            (piece(60, 4, 7), MrAccess::REMOTE_READ, None),
            (piece(64, 0, 7), MrAccess::REMOTE_READ, None),
        ];
        for (piece, rights, denied) in table {
            let located = keys.regions().locate(&piece, rights);
            assert_eq!(located.err(), denied, "{piece:?}");
        }
        drop(region);
        let gone = keys
            .regions()
            .locate(&piece(0, 1, 7), MrAccess::REMOTE_READ);
        assert_eq!(gone.unwrap_err(), Denied::Key);
    }

    #[test]
    fn keys_are_the_application_s_or_random_and_never_two_of_a_kind() {
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
