//! `Peers`: the table of an endpoint's peers, by number, by name and by index of the address vector.

pub(crate) mod announce;
pub(crate) mod name;
pub(crate) mod ops;
pub(crate) mod outbox;
pub(crate) mod peer;
pub(crate) mod stores;
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

/// The peers that were connected to or addressed. A peer's number is its place in the table and its
/// [`Source`]. RmaSegments of peers that are gone for good are used again.
#[derive(Debug)]
pub(crate) struct Peers {
    list: Vec<Peer>,
    names: FxHashMap<Name, u32>,
    /// Peers by index of the address vector; [`UNKNOWN`] where it was not looked up yet.
    addrs: Vec<u32>,
    addr_epoch: u64,
    /// The same for contexts of scalable endpoints, whose indices are no places.
    contexts: FxHashMap<FiAddr, u32>,
    /// RmaSegments of peers that are gone for good, or were when they were noted down.
    vacant: Vec<u32>,
    /// The place that was last looked at for a new peer.
    reuse: usize,
    av: Arc<Av>,
    shared: Arc<Shared>,
}

/// The number of a peer that was not looked up.
const UNKNOWN: u32 = u32::MAX;

impl Peers {
    /// An empty table beside an address vector.
    pub(crate) fn new(av: Arc<Av>, shared: Arc<Shared>) -> Self {
        Self {
            list: Vec::new(),
            names: FxHashMap::default(),
            addrs: Vec::new(),
            addr_epoch: 0,
            contexts: FxHashMap::default(),
            vacant: Vec::new(),
            reuse: 0,
            av,
            shared,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Peer> {
        self.list.get_mut(index)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.list.iter_mut()
    }

    /// The peer with a name, if there is one.
    pub(crate) fn find(&self, name: &Name) -> Option<&Peer> {
        let index = self.names.get(name)?;
        self.list.get(*index as usize)
    }

    /// The number of the peer at an index of the address vector.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an index that the address vector does not have.
    #[inline]
    pub(crate) fn at(&mut self, addr: FiAddr) -> Result<usize> {
        match self.known_index(addr) {
            Some(index) if index != UNKNOWN => Ok(index as usize),
            _ => self.look_up(addr),
        }
    }

    /// The peer at an index of the address vector, if it was looked up before.
    #[inline(always)]
    pub(crate) fn known(&mut self, addr: FiAddr) -> Option<&mut Peer> {
        let index = self.known_index(addr)?;
        self.list.get_mut(index as usize)
    }

    /// The number that was found for an index of the address vector, [`UNKNOWN`] included.
    #[inline(always)]
    fn known_index(&self, addr: FiAddr) -> Option<u32> {
        (self.av.epoch() == self.addr_epoch).then_some(())?;
        self.addrs.get(addr.0 as usize).copied()
    }

    #[cold]
    fn look_up(&mut self, addr: FiAddr) -> Result<usize> {
        let epoch = self.av.epoch();
        if epoch != self.addr_epoch {
            self.addrs.clear();
            self.contexts.clear();
            self.addr_epoch = epoch;
        }
        if let Some(&index) = self.contexts.get(&addr) {
            return Ok(index as usize);
        }
        let name = self.av.name(addr).ok_or(Errno::Inval)?;
        let index = self.named(&name);
        if self.av.names_context(addr) {
            self.contexts.insert(addr, index as u32);
            return Ok(index);
        }
        let place = addr.0 as usize;
        if place >= self.addrs.len() {
            self.addrs.resize(place + 1, UNKNOWN);
        }
        self.addrs[place] = index as u32;
        Ok(index)
    }

    /// The peer with a name, which becomes one if it is none.
    pub(crate) fn named(&mut self, name: &Name) -> usize {
        if let Some(&index) = self.names.get(name) {
            return index as usize;
        }
        let index = self.list.len();
        let sibling = self.shared.siblings.find(name);
        self.list
            .push(Peer::new(name.clone(), index as u32, sibling));
        self.names.insert(name.clone(), index as u32);
        index
    }

    /// The peer with the name in a handshake. A new name takes the place of a peer that is gone for
    /// good, so that peers that come and go do not pile up. `has_left` says whether a message of a
    /// source waits for its receive.
    pub(crate) fn introduced(
        &mut self,
        name: &Name,
        has_left: impl FnMut(Source) -> bool,
    ) -> usize {
        if self.names.contains_key(name) {
            return self.named(name);
        }
        let Some(index) = self.vacancy(has_left) else {
            return self.named(name);
        };
        self.names.remove(&self.list[index].name);
        self.names.insert(name.clone(), index as u32);
        let sibling = self.shared.siblings.find(name);
        self.list[index].become_another(name.clone(), sibling);
        index
    }

    /// The place of a peer that is gone for good: one that was noted down, or one of the next few.
    fn vacancy(&mut self, mut has_left: impl FnMut(Source) -> bool) -> Option<usize> {
        const TRIED: usize = 4;
        while let Some(index) = self.vacant.pop() {
            if self.is_forgotten(index as usize, &mut has_left) {
                return Some(index as usize);
            }
        }
        (0..TRIED.min(self.list.len())).find_map(|_| {
            self.reuse = (self.reuse + 1) % self.list.len();
            let index = self.reuse;
            self.is_forgotten(index, &mut has_left).then_some(index)
        })
    }

    /// Whether a peer is gone, has left nothing and is not in the address vector.
    fn is_forgotten(&mut self, index: usize, mut has_left: impl FnMut(Source) -> bool) -> bool {
        let peer = &mut self.list[index];
        peer.state == PeerState::Dead
            && peer.fi_addr(&self.av) == FiAddr::UNSPEC
            && !has_left(peer.source())
    }

    /// A connection was refused: unless something else asks for a peer with its name, there is none.
    pub(crate) fn dismiss(&mut self, index: usize) {
        let peer = &mut self.list[index];
        if peer.state == PeerState::Idle && peer.fi_addr(&self.av) == FiAddr::UNSPEC {
            peer.state = PeerState::Dead;
            self.vacant.push(index as u32);
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

    /// An empty table, and its address vector.
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
    fn a_peer_has_one_number_however_it_is_found() {
        let (mut peers, av) = table();
        let number = peers.introduced(&name("b"), |_| false);
        let addr: Address = name("b").to_address();
        let addr = av.insert_one(&addr).unwrap();
        assert!(peers.known(addr).is_none(), "known before it was looked up");
        assert_eq!(peers.at(addr), Ok(number));
        assert_eq!(
            peers.known(addr).map(|peer| peer.source()),
            Some(Source(number as u32))
        );
        assert_eq!(peers.named(&name("b")), number);
        av.remove(&[addr]).unwrap();
        assert!(peers.known(addr).is_none(), "known after its removal");
        assert_eq!(peers.at(addr), Err(Errno::Inval));
    }

    #[test]
    fn a_new_peer_takes_the_place_of_one_that_is_gone_and_has_left_nothing() {
        let (mut peers, _av) = table();
        let gone = peers.introduced(&name("gone"), |_| false);
        peers[gone].state = PeerState::Dead;
        let other = peers.introduced(&name("other"), |source| source == Source(gone as u32));
        assert_ne!(other, gone, "its messages would be another's");
        let next = peers.introduced(&name("next"), |_| false);
        assert_eq!(next, gone);
        assert!(peers.find(&name("gone")).is_none());
        assert_eq!(peers.len(), 2);
    }
}
