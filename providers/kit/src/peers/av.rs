//! The table behind an address vector: peers by index, and indices by peer.
//!
//! It neither parses nor connects to addresses; the provider chooses the type of its entries.

mod context_bits;
mod file;
mod vector;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::FxHashMap;
use selvedge::{Address, Errno, Error, FiAddr, Result, av};

use crate::lock::Lock;
use context_bits::ContextBits;

pub use vector::{Peer, Vector};

/// A table of peers. Indices are assigned from zero on, the lowest free one first.
#[derive(Debug)]
pub struct Table<T> {
    entries: Lock<Entries<T>>,
    epoch: AtomicU64,
    bits: ContextBits,
}

#[derive(Debug)]
struct Entries<T> {
    slots: Vec<Option<T>>,
    by_value: FxHashMap<T, usize>,
    free: BinaryHeap<Reverse<usize>>,
    /// The identifiers of peers in completions, where they differ from the index
    /// (fi_av_set_user_id(3)).
    ids: FxHashMap<usize, FiAddr>,
}

impl<T: Clone + Eq + Hash> Table<T> {
    /// Makes an empty table for an address vector.
    ///
    /// # Errors
    /// [`Errno::Inval`] for more context bits than are supported.
    pub fn open(attr: &av::Attr) -> Result<Self, Error> {
        Ok(Self {
            bits: ContextBits::new(attr.rx_ctx_bits)?,
            ..Self::with_capacity(attr.count)
        })
    }

    /// Makes an empty table with initial capacity for `count` peers, up to a limit.
    pub fn with_capacity(count: usize) -> Self {
        Self {
            bits: ContextBits::default(),
            entries: Lock::new(Entries {
                slots: Vec::with_capacity(count.min(MAX_INITIAL_CAPACITY)),
                by_value: FxHashMap::default(),
                free: BinaryHeap::new(),
                ids: FxHashMap::default(),
            }),
            epoch: AtomicU64::new(0),
        }
    }

    /// Adds a peer and returns its index. If the table contains an equal peer, only returns the
    /// index of that one.
    pub fn insert(&self, peer: T) -> FiAddr {
        let mut entries = self.entries.lock();
        if let Some(&index) = entries.by_value.get(&peer) {
            return FiAddr(index as u64);
        }
        let index = entries.insert(peer);
        self.bump_epoch();
        FiAddr(index as u64)
    }

    /// Removes peers.
    ///
    /// # Errors
    /// [`Errno::Inval`] if one of them is not in the table or is named twice; then none is removed.
    pub fn remove(&self, addrs: &[FiAddr]) -> Result {
        let mut entries = self.entries.lock();
        let mut indices = Vec::with_capacity(addrs.len());
        for &addr in addrs {
            indices.push(entries.index(addr).ok_or(Errno::Inval)?);
        }
        indices.sort_unstable();
        if indices.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Errno::Inval);
        }
        indices.into_iter().for_each(|index| entries.clear(index));
        self.bump_epoch();
        Ok(())
    }

    /// Returns the peer at an index.
    pub fn lookup(&self, addr: FiAddr) -> Option<T> {
        let entries = self.entries.lock();
        let index = entries.index(addr)?;
        entries.slots[index].clone()
    }

    /// Sets the entry at `index` to `peer`, the entry of another table. A peer that this table
    /// contains at another index is left out.
    fn mirror(&self, index: usize, peer: Option<T>) {
        let mut entries = self.entries.lock();
        let present = entries.slots.get(index).and_then(Option::as_ref);
        if present == peer.as_ref() {
            return;
        }
        if let Some(removed) = entries.slots.get_mut(index).and_then(Option::take) {
            entries.by_value.remove(&removed);
            entries.ids.remove(&index);
        }
        if let Some(peer) = peer.filter(|peer| !entries.by_value.contains_key(peer)) {
            if entries.slots.len() <= index {
                entries.slots.resize(index + 1, None);
            }
            entries.slots[index] = Some(peer.clone());
            entries.by_value.insert(peer, index);
        }
        self.bump_epoch();
    }

    /// The number of slots, empty ones included.
    fn slots_len(&self) -> usize {
        self.entries.lock().slots.len()
    }

    /// Returns the index of a peer.
    pub fn find(&self, peer: &T) -> Option<FiAddr> {
        let entries = self.entries.lock();
        entries
            .by_value
            .get(peer)
            .map(|&index| FiAddr(index as u64))
    }

    /// Sets the identifier of a peer in completions.
    ///
    /// # Errors
    /// [`Errno::Inval`] if the peer is not in the table, or the identifier is [`FiAddr::UNSPEC`] or
    /// uses context bits.
    pub fn set_id(&self, addr: FiAddr, id: FiAddr) -> Result {
        let mut entries = self.entries.lock();
        let is_invalid = id == FiAddr::UNSPEC || self.bits.split(id).1 != 0;
        let index = entries.index(addr).filter(|_| !is_invalid);
        entries.ids.insert(index.ok_or(Errno::Inval)?, id);
        self.bump_epoch();
        Ok(())
    }

    /// Returns the source that completions report for a peer: its identifier if one is set,
    /// otherwise its index.
    pub fn source(&self, peer: &T) -> Option<FiAddr> {
        let entries = self.entries.lock();
        let index = *entries.by_value.get(peer)?;
        let id = entries.ids.get(&index).copied();
        Some(id.unwrap_or(FiAddr(index as u64)))
    }

    /// Splits an address into the index of a peer and the number of a context.
    #[inline]
    pub const fn split(&self, addr: FiAddr) -> (FiAddr, usize) {
        self.bits.split(addr)
    }

    /// Returns the source that completions report for a context of a peer; `None` if the peer is
    /// unknown or the context bits cannot represent the context.
    pub fn context_source(&self, peer: &T, context: usize) -> Option<FiAddr> {
        self.bits.join(self.source(peer)?, context)
    }

    /// Returns every peer with its index, in the order of indices.
    pub fn peers(&self) -> Vec<(FiAddr, T)> {
        let entries = self.entries.lock();
        let slots = (0..).map(FiAddr).zip(&entries.slots);
        slots
            .filter_map(|(addr, slot)| Some((addr, slot.clone()?)))
            .collect()
    }

    /// Returns the indices in use, in ascending order.
    pub fn members(&self) -> Vec<FiAddr> {
        let entries = self.entries.lock();
        let slots = (0..).map(FiAddr).zip(&entries.slots);
        slots
            .filter_map(|(addr, slot)| slot.as_ref().map(|_| addr))
            .collect()
    }

    /// Returns the number of peers.
    pub fn len(&self) -> usize {
        self.entries.lock().by_value.len()
    }

    /// Returns whether there is no peer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a number that changes with every change of the table: with one load, an endpoint
    /// finds out whether the data that it has cached from the table is still valid.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Called under the lock: a thread that sees the new number also sees the new table.
    fn bump_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }
}

impl<T: Clone + Eq + Hash> Default for Table<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T: Clone + Eq + Hash> Entries<T> {
    fn insert(&mut self, peer: T) -> usize {
        let index = match self.free.pop() {
            Some(Reverse(index)) => index,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        self.slots[index] = Some(peer.clone());
        self.by_value.insert(peer, index);
        index
    }

    fn index(&self, addr: FiAddr) -> Option<usize> {
        let index = usize::try_from(addr.0).ok()?;
        self.slots.get(index)?.as_ref().map(|_| index)
    }

    fn clear(&mut self, index: usize) {
        if let Some(peer) = self.slots[index].take() {
            self.by_value.remove(&peer);
            self.ids.remove(&index);
            self.free.push(Reverse(index));
        }
    }
}

/// Checks that an address vector has neither context bits nor a name, for providers without
/// scalable endpoints and named address vectors.
///
/// # Errors
/// [`Errno::NoSys`] if it has one of them. The message contains the attribute and `domain`.
pub fn check_plain(attr: &av::Attr, domain: &dyn std::fmt::Debug) -> Result<(), Error> {
    let message = match (attr.rx_ctx_bits, &attr.name) {
        (0, None) => return Ok(()),
        (0, Some(name)) => format!("{name:?}: {domain:?} does not support named address vectors"),
        (bits, _) => {
            format!("rx_ctx_bits is {bits}: {domain:?} does not support scalable endpoints")
        }
    };
    Err(Error::new(Errno::NoSys, message))
}

/// Returns the names of fi_av_insertsym(3): every pair of a node and a service, nodes in the outer
/// loop. The first node and the first service are given; the number at the end of a name is
/// incremented for the next name. Leading zeros are kept: `node09` is followed by `node10`.
///
/// # Errors
/// [`Errno::Inval`] for names that cannot be incremented, or for more pairs than there is `room`
/// for.
pub fn symmetric(
    (node, nodes): (&str, usize),
    (service, services): (&str, usize),
    room: usize,
) -> Result<Vec<(String, String)>, Error> {
    match nodes.checked_mul(services) {
        Some(0) => return Ok(Vec::new()),
        Some(count) if count <= room => {}
        _ => {
            let message = format!(
                "{nodes} nodes with {services} services: the array has room for {room} addresses"
            );
            return Err(Error::new(Errno::Inval, message));
        }
    }
    let nodes = numbered("node", node, nodes)?;
    let services = numbered("service", service, services)?;
    let pairs_of = |node: &String| {
        let node = node.clone();
        services.iter().map(move |it| (node.clone(), it.clone()))
    };
    Ok(nodes.iter().flat_map(pairs_of).collect())
}

/// Returns `count` names, from `first` on. A single name needs no number at its end.
fn numbered(kind: &str, first: &str, count: usize) -> Result<Vec<String>, Error> {
    if count == 1 {
        return Ok(vec![first.to_owned()]);
    }
    let stem = first.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &first[stem.len()..];
    let range = || {
        let number: u64 = digits.parse().ok()?;
        Some(number..number.checked_add(count as u64)?)
    };
    let range = range().ok_or_else(|| {
        let message = format!(
            "{kind} {first:?} cannot be counted up to {count} names: they need a number at its end \
             that stays below 2^64"
        );
        Error::new(Errno::Inval, message)
    })?;
    let name = |number| format!("{stem}{number:0width$}", width = digits.len());
    Ok(range.map(name).collect())
}

/// Inserts addresses one by one, for [`selvedge::AddressVector::insert`]. `insert` returns no index
/// for an address that it refuses. Returns the number of inserted addresses.
///
/// # Errors
/// [`Errno::Inval`] if `out` is shorter than `addrs`; the errors of `insert`.
pub fn insert_all(
    addrs: &[Address],
    out: &mut [FiAddr],
    insert: impl Fn(&Address) -> Result<Option<FiAddr>, Errno>,
) -> Result<usize, Errno> {
    let out = out.get_mut(..addrs.len()).ok_or(Errno::Inval)?;
    let mut inserted = 0;
    for (addr, slot) in iter::zip(addrs, out) {
        let index = insert(addr)?;
        inserted += usize::from(index.is_some());
        *slot = index.unwrap_or(FiAddr::NOTAVAIL);
    }
    Ok(inserted)
}

/// Inserts the pairs of [`symmetric`] one by one; returns how many of them `insert` has accepted.
///
/// # Errors
/// Those of [`symmetric`].
pub fn insert_symmetric(
    nodes: (&str, usize),
    services: (&str, usize),
    out: &mut [FiAddr],
    insert: impl Fn(&str, &str) -> Result<FiAddr, Error>,
) -> Result<usize, Error> {
    let pairs = symmetric(nodes, services, out.len())?;
    let mut inserted = 0;
    for ((node, service), slot) in iter::zip(pairs, out) {
        *slot = insert(&node, &service).unwrap_or(FiAddr::NOTAVAIL);
        inserted += usize::from(*slot != FiAddr::NOTAVAIL);
    }
    Ok(inserted)
}

/// The largest initial capacity, whatever the application's hint.
const MAX_INITIAL_CAPACITY: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(peers: &[&'static str]) -> Table<&'static str> {
        let table = Table::default();
        peers.iter().for_each(|&peer| {
            table.insert(peer);
        });
        table
    }

    #[test]
    fn indices_start_at_zero_and_are_found_in_both_directions() {
        let table = table(&["a", "b"]);
        assert_eq!(table.lookup(FiAddr(1)), Some("b"));
        assert_eq!(table.find(&"a"), Some(FiAddr(0)));
        assert_eq!(table.find(&"c"), None);
        assert_eq!(table.lookup(FiAddr(2)), None);
        assert_eq!(table.lookup(FiAddr::UNSPEC), None);
    }

    #[test]
    fn inserting_again_gives_the_same_index() {
        let table = table(&["a", "b"]);
        let epoch = table.epoch();
        assert_eq!(table.insert("a"), FiAddr(0));
        assert_eq!(table.len(), 2);
        assert_eq!(table.epoch(), epoch);
    }

    #[test]
    fn the_lowest_free_index_is_given_out_first() {
        let table = table(&["a", "b", "c", "d"]);
        table.remove(&[FiAddr(2), FiAddr(0)]).unwrap();
        assert_eq!(table.insert("e"), FiAddr(0));
        assert_eq!(table.insert("f"), FiAddr(2));
        assert_eq!(table.insert("g"), FiAddr(4));
    }

    #[test]
    fn a_removal_that_names_an_unknown_peer_removes_nothing() {
        let table = table(&["a", "b"]);
        for bad in [FiAddr(7), FiAddr::UNSPEC, FiAddr(0)] {
            assert_eq!(table.remove(&[FiAddr(0), bad]), Err(Errno::Inval));
        }
        assert_eq!(table.len(), 2);
        assert_eq!(table.find(&"a"), Some(FiAddr(0)));
    }

    #[test]
    fn a_removed_peer_is_not_found_and_can_be_inserted_again() {
        let table = table(&["a", "b"]);
        table.remove(&[FiAddr(0)]).unwrap();
        assert_eq!(table.find(&"a"), None);
        assert_eq!(table.lookup(FiAddr(0)), None);
        assert_eq!(table.insert("a"), FiAddr(0));
    }

    #[test]
    fn names_are_counted_by_the_number_at_their_end() {
        for (first, count, last) in [
            ("host9", 3, "host11"),
            ("node008", 3, "node010"),
            ("5000", 2, "5001"),
            ("10.1.1.1", 2, "10.1.1.2"),
            ("1:07", 1, "1:07"),
            ("none", 1, "none"),
        ] {
            let names = numbered("node", first, count).unwrap();
            assert_eq!(names.len(), count);
            assert_eq!(names[0], first);
            assert_eq!(names[count - 1], last);
        }
        for uncountable in [
            "none",
            "",
            "a1b",
            "18446744073709551615",
            "99999999999999999999",
        ] {
            let error = numbered("node", uncountable, 2).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
            assert!(
                error.message().contains(&format!("node {uncountable:?}")),
                "{error}"
            );
        }
    }

    #[test]
    fn zero_services_or_zero_nodes_give_no_names() {
        for (nodes, services) in [(usize::MAX, 0), (0, usize::MAX)] {
            let pairs = symmetric(("node0", nodes), ("1", services), 4).unwrap();
            assert_eq!(pairs, []);
        }
        let error = symmetric(("node0", 3), ("1", 2), 4).unwrap_err();
        assert!(
            error.message().starts_with("3 nodes with 2 services"),
            "{error}"
        );
    }

    #[test]
    fn every_change_shows_in_the_epoch() {
        let table = table(&["a"]);
        let before = table.epoch();
        table.insert("b");
        let between = table.epoch();
        table.remove(&[FiAddr(1)]).unwrap();
        assert!(before != between && between != table.epoch());
    }
}
