//! The table of the regions that peers may access, by number and by key.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use rustc_hash::FxHashMap;
use selvedge::rma::RmaIov;
use selvedge::{Errno, Error, MrAccess};

use super::Denied;
use super::counts::{Bound, Counts};

/// The key of a region that peers may not use (`FI_KEY_NOTAVAIL`).
pub(super) const NO_KEY: u64 = u64::MAX;
/// The number of low bits of a provider's key that hold the entry's number; the other bits are
/// random. An application's key with the same low bits gets the entry of this number, too, if it is
/// free.
const ENTRY_BITS: u32 = 20;
const ENTRY_MASK: u64 = (1 << ENTRY_BITS) - 1;

/// The regions of a domain that peers may access.
#[derive(Debug)]
pub(super) struct Table<P: Publication> {
    /// The regions, by entry number.
    slots: Vec<Option<Entry<P::Details>>>,
    /// The numbers of free entries.
    free: BTreeSet<u32>,
    /// Entry numbers by key.
    by_key: FxHashMap<u64, u32>,
    /// The counters of regions.
    pub(super) counts: Counts,
    pub(super) publication: P,
}

/// An entry of the table: one region.
#[derive(Clone, Copy, Debug)]
pub struct Entry<D> {
    /// The key by which peers name the region.
    pub key: u64,
    /// The address or offset by which peers name the region's first byte.
    pub start: u64,
    /// The length in bytes.
    pub len: usize,
    /// The address of the first byte in this process.
    pub first: usize,
    /// The rights of peers.
    pub access: MrAccess,
    /// Whether the region has a counter: this process must notice each access.
    pub is_counted: bool,
    /// The other data that the provider publishes.
    pub details: D,
}

/// The place where peers read the entries of a key table. `()` publishes nothing, for providers
/// whose peers access regions by requests.
pub trait Publication: fmt::Debug + Send + Sync + 'static {
    /// The data of a region that a provider publishes in addition to the fields of [`Entry`].
    type Details: Copy + Default + fmt::Debug + Send + Sync;

    /// Makes room for further entries, when the `present` ones are in use. Returns their number.
    ///
    /// # Errors
    /// The system's error, if there is no memory.
    fn grow(&mut self, present: usize) -> Result<usize, Error>;

    /// Publishes an entry.
    fn publish(&mut self, number: usize, entry: &Entry<Self::Details>);

    /// Publishes a change of an entry.
    fn amend(&mut self, number: usize, entry: &Entry<Self::Details>);

    /// Withdraws an entry. The memory that the entry names may be reused after the return.
    fn withdraw(&mut self, number: usize);
}

impl Publication for () {
    type Details = ();

    fn grow(&mut self, present: usize) -> Result<usize, Error> {
        Ok(present.max(64))
    }

    fn publish(&mut self, _: usize, _: &Entry<()>) {}

    fn amend(&mut self, _: usize, _: &Entry<()>) {}

    fn withdraw(&mut self, _: usize) {}
}

impl<P: Publication> Table<P> {
    pub(super) fn new(publication: P) -> Self {
        Self {
            slots: Vec::new(),
            free: BTreeSet::new(),
            by_key: FxHashMap::default(),
            counts: Counts::default(),
            publication,
        }
    }

    /// Adds a region under the key in `entry`, or under a new key where the provider chooses keys.
    /// Returns the key and the entry's number.
    ///
    /// # Errors
    /// [`Errno::NoKey`] if the key is in use; as [`Publication::grow`].
    pub(super) fn insert(
        &mut self,
        mut entry: Entry<P::Details>,
        has_provider_key: bool,
    ) -> Result<(u64, u32), Error> {
        if !has_provider_key && !self.is_available(entry.key) {
            let message = format!(
                "the key {:#x} is in use by another region; choose another key",
                entry.key
            );
            return Err(Error::new(Errno::NoKey, message));
        }
        if self.free.is_empty() {
            let first = self.slots.len();
            let len = first + self.publication.grow(first)?;
            self.slots.resize(len, None);
            self.free.extend(first as u32..len as u32);
        }
        let hint = (entry.key & ENTRY_MASK) as u32;
        let number = if has_provider_key {
            self.free.first()
        } else {
            self.free.get(&hint).or_else(|| self.free.first())
        };
        let is_full = || Error::new(Errno::NoMem, "the key table has no free entry");
        let number = *number.ok_or_else(is_full)?;
        if has_provider_key {
            let random_key = || random() << ENTRY_BITS | u64::from(number) & ENTRY_MASK;
            entry.key = random_key();
            while !self.is_available(entry.key) {
                entry.key = random_key();
            }
        }
        self.free.remove(&number);
        self.by_key.insert(entry.key, number);
        self.slots[number as usize] = Some(entry);
        self.publication.publish(number as usize, &entry);
        Ok((entry.key, number))
    }

    fn is_available(&self, key: u64) -> bool {
        key != NO_KEY && !self.by_key.contains_key(&key)
    }

    /// Withdraws an entry. Returns the counters of its region, which the caller drops after it has
    /// released the lock.
    pub(super) fn remove(&mut self, number: u32) -> Option<Bound> {
        self.publication.withdraw(number as usize);
        self.free.insert(number);
        let entry = self.slots[number as usize].take()?;
        self.by_key.remove(&entry.key);
        self.counts.remove(entry.key)
    }

    /// Publishes that a region has a counter.
    pub(super) fn mark_counted(&mut self, number: u32) {
        if let Some(entry) = &mut self.slots[number as usize] {
            entry.is_counted = true;
            self.publication.amend(number as usize, entry);
        }
    }

    /// Finds the region that has a key.
    #[inline]
    pub(super) fn find(&self, key: u64) -> Option<&Entry<P::Details>> {
        let hint = self.slots.get(entry_hint(key));
        let hint = hint.and_then(|entry| entry.as_ref().filter(|entry| entry.key == key));
        hint.or_else(|| {
            let number = *self.by_key.get(&key)?;
            self.slots[number as usize].as_ref()
        })
    }
}

impl<D> Entry<D> {
    /// The offset of a segment in the region, if the region grants the rights.
    ///
    /// # Errors
    /// The reason why the access is denied.
    #[inline]
    pub(super) fn locate(&self, segment: &RmaIov, rights: MrAccess) -> Result<usize, Denied> {
        if !self.access.contains(rights) {
            return Err(Denied::Rights);
        }
        let offset = segment.addr.checked_sub(self.start).ok_or(Denied::Bounds)?;
        let offset = usize::try_from(offset).map_err(|_| Denied::Bounds)?;
        if offset > self.len || segment.len > self.len - offset {
            Err(Denied::Bounds)
        } else {
            Ok(offset)
        }
    }

    /// Whether the region covers all addresses, most of which are not mapped.
    #[inline]
    pub const fn is_whole(&self) -> bool {
        self.first == 0 && self.len == usize::MAX
    }
}

/// The number of the entry that a key probably has.
#[inline]
pub const fn entry_hint(key: u64) -> usize {
    (key & ENTRY_MASK) as usize
}

/// A random number: the standard library seeds its hashers from the system.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
