//! `Peers`: the table of an endpoint's peers, by slot, by name and by index of the address vector.

pub(crate) mod announce;
pub(crate) mod copy_selector;
pub(crate) mod name;
pub(crate) mod ops;
pub(crate) mod outbox;
pub(crate) mod peer;
pub(crate) mod telemetry;

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use selvedge::{Errno, FiAddr, Result};
use selvedge_kit::srx::Source;

use crate::peers::name::Name;
use crate::peers::peer::{Peer, State as PeerState};
use crate::provider::av::Av;
use crate::provider::shared::Shared;

/// The peers of an endpoint that were connected or addressed. A peer's number is its slot in the
/// table, and its [`Source`] in the matcher. Slots of disconnected peers are reused.
#[derive(Debug)]
pub(crate) struct Peers {
    list: Vec<Peer>,
    names: FxHashMap<Name, u32>,
    /// Cache of peer numbers by index of the address vector; [`UNKNOWN`] for an index that was not
    /// looked up yet.
    addrs: Vec<u32>,
    /// The epoch of the address vector for which the caches are valid.
    addr_epoch: u64,
    /// Cache of peer numbers for contexts of scalable endpoints, whose indices are sparse.
    contexts: FxHashMap<FiAddr, u32>,
    /// Slots to reuse first. The peers in them were disconnected when the slot was added.
    vacant: Vec<u32>,
    /// The slot that was checked last for reuse.
    reuse_cursor: usize,
    av: Arc<Av>,
    shared: Arc<Shared>,
}

/// The peer number of an index that was not looked up yet.
const UNKNOWN: u32 = u32::MAX;

impl Peers {
    /// Creates an empty table for an address vector.
    pub(crate) fn new(av: Arc<Av>, shared: Arc<Shared>) -> Self {
        Self {
            list: Vec::new(),
            names: FxHashMap::default(),
            addrs: Vec::new(),
            addr_epoch: 0,
            contexts: FxHashMap::default(),
            vacant: Vec::new(),
            reuse_cursor: 0,
            av,
            shared,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Peer> {
        self.list.get_mut(number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.list.iter_mut()
    }

    /// Finds the peer with a name.
    pub(crate) fn find(&self, name: &Name) -> Option<&Peer> {
        let number = self.names.get(name)?;
        self.list.get(*number as usize)
    }

    /// Returns the number of the peer at an index of the address vector.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an index that the address vector does not have.
    #[inline]
    pub(crate) fn resolve(&mut self, addr: FiAddr) -> Result<usize> {
        match self.cached_number(addr) {
            Some(number) if number != UNKNOWN => Ok(number as usize),
            _ => self.resolve_uncached(addr),
        }
    }

    /// Returns the peer at an index of the address vector, if the index is in the cache.
    #[inline(always)]
    pub(crate) fn cached(&mut self, addr: FiAddr) -> Option<&mut Peer> {
        let number = self.cached_number(addr)?;
        self.list.get_mut(number as usize)
    }

    /// Returns the cached number for an index of the address vector, which may be [`UNKNOWN`].
    #[inline(always)]
    fn cached_number(&self, addr: FiAddr) -> Option<u32> {
        (self.av.epoch() == self.addr_epoch).then_some(())?;
        self.addrs.get(addr.0 as usize).copied()
    }

    /// [`Self::resolve`] for an index that is not in the cache.
    #[cold]
    fn resolve_uncached(&mut self, addr: FiAddr) -> Result<usize> {
        let epoch = self.av.epoch();
        if epoch != self.addr_epoch {
            self.addrs.clear();
            self.contexts.clear();
            self.addr_epoch = epoch;
        }
        if let Some(&number) = self.contexts.get(&addr) {
            return Ok(number as usize);
        }
        let name = self.av.name(addr).ok_or(Errno::Inval)?;
        let number = self.find_or_add(&name);
        if self.av.names_context(addr) {
            self.contexts.insert(addr, number as u32);
            return Ok(number);
        }
        let index = addr.0 as usize;
        if index >= self.addrs.len() {
            self.addrs.resize(index + 1, UNKNOWN);
        }
        self.addrs[index] = number as u32;
        Ok(number)
    }

    /// Returns the number of the peer with a name. Adds the peer if it is new.
    pub(crate) fn find_or_add(&mut self, name: &Name) -> usize {
        if let Some(&number) = self.names.get(name) {
            return number as usize;
        }
        let number = self.list.len();
        let sibling = self.shared.siblings.find(name);
        self.list
            .push(Peer::new(name.clone(), number as u32, sibling));
        self.names.insert(name.clone(), number as u32);
        number
    }

    /// Returns the number of the peer with the name in a handshake. A new name reuses the slot of a
    /// disconnected peer, so that the table does not grow as peers connect and disconnect.
    /// `has_unexpected` returns whether an unexpected message of a source waits for its receive.
    pub(crate) fn find_or_reuse(
        &mut self,
        name: &Name,
        has_unexpected: impl FnMut(Source) -> bool,
    ) -> usize {
        if self.names.contains_key(name) {
            return self.find_or_add(name);
        }
        let Some(number) = self.find_vacant(has_unexpected) else {
            return self.find_or_add(name);
        };
        self.names.remove(&self.list[number].name);
        self.names.insert(name.clone(), number as u32);
        let sibling = self.shared.siblings.find(name);
        self.list[number].reset_for(name.clone(), sibling);
        number
    }

    /// Finds a slot to reuse: one of `vacant`, or one of the next few slots of the table.
    fn find_vacant(&mut self, mut has_unexpected: impl FnMut(Source) -> bool) -> Option<usize> {
        const ATTEMPTS: usize = 4;
        while let Some(number) = self.vacant.pop() {
            if self.is_reusable(number as usize, &mut has_unexpected) {
                return Some(number as usize);
            }
        }
        (0..ATTEMPTS.min(self.list.len())).find_map(|_| {
            self.reuse_cursor = (self.reuse_cursor + 1) % self.list.len();
            let number = self.reuse_cursor;
            self.is_reusable(number, &mut has_unexpected)
                .then_some(number)
        })
    }

    /// Whether a peer is disconnected, has no unexpected messages and is not in the address vector.
    fn is_reusable(
        &mut self,
        number: usize,
        mut has_unexpected: impl FnMut(Source) -> bool,
    ) -> bool {
        let peer = &mut self.list[number];
        peer.state == PeerState::Disconnected
            && peer.fi_addr(&self.av) == FiAddr::UNSPEC
            && !has_unexpected(peer.source())
    }

    /// Releases the slot of a peer whose connection was refused, unless the peer is in the address
    /// vector.
    pub(crate) fn release_unconnected(&mut self, number: usize) {
        let peer = &mut self.list[number];
        if peer.state == PeerState::Idle && peer.fi_addr(&self.av) == FiAddr::UNSPEC {
            peer.state = PeerState::Disconnected;
            self.vacant.push(number as u32);
        }
    }
}

impl Index<usize> for Peers {
    type Output = Peer;

    #[inline(always)]
    fn index(&self, index: usize) -> &Peer {
        &self.list[index]
    }
}

impl IndexMut<usize> for Peers {
    #[inline(always)]
    fn index_mut(&mut self, index: usize) -> &mut Peer {
        &mut self.list[index]
    }
}

#[cfg(test)]
mod tests {
    use selvedge::{Address, AddressVector, Info, MrMode, av};
    use selvedge_kit::mr::{ObjectSharing, RegionCounters};
    use selvedge_kit::{DomainId, FabricId};

    use super::*;

    /// An empty table and its address vector.
    fn table() -> (Peers, Arc<Av>) {
        let domain = DomainId::new("a domain", FabricId::of(&Info::default()));
        let region_counters = Arc::new(RegionCounters::of(&domain, ObjectSharing::AcrossGroups));
        let av = Arc::new(Av::open(&av::Attr::default(), &domain).unwrap());
        let shared = Arc::new(Shared::new(MrMode::empty(), &region_counters));
        (Peers::new(Arc::clone(&av), shared), av)
    }

    fn name(text: &str) -> Name {
        Name::plain(text).unwrap()
    }

    #[test]
    fn a_peer_has_the_same_number_by_name_and_by_address() {
        let (mut peers, av) = table();
        let number = peers.find_or_reuse(&name("b"), |_| false);
        let addr: Address = name("b").to_address();
        let addr = av.insert_one(&addr).unwrap();
        assert!(peers.cached(addr).is_none(), "cached before the lookup");
        assert_eq!(peers.resolve(addr), Ok(number));
        assert_eq!(
            peers.cached(addr).map(|peer| peer.source()),
            Some(Source(number as u32))
        );
        assert_eq!(peers.find_or_add(&name("b")), number);
        av.remove(&[addr]).unwrap();
        assert!(peers.cached(addr).is_none(), "cached after its removal");
        assert_eq!(peers.resolve(addr), Err(Errno::Inval));
    }

    #[test]
    fn a_new_peer_reuses_the_slot_of_a_disconnected_one_without_unexpected_messages() {
        let (mut peers, _av) = table();
        let disconnected = peers.find_or_reuse(&name("disconnected"), |_| false);
        peers[disconnected].state = PeerState::Disconnected;
        let other = peers.find_or_reuse(&name("other"), |source| {
            source == Source(disconnected as u32)
        });
        assert_ne!(
            other, disconnected,
            "the unexpected messages of the old peer would have a wrong source"
        );
        let next = peers.find_or_reuse(&name("next"), |_| false);
        assert_eq!(next, disconnected);
        assert!(peers.find(&name("disconnected")).is_none());
        assert_eq!(peers.len(), 2);
    }
}
