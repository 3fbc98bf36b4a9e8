//! `Peers`: the peers that an endpoint has connected to or addressed, by index, by socket address
//! and by address-vector index. `Peers` opens no connections and does not refer to operations.

use std::fmt;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use selvedge::{Address, Errno, FiAddr, Result};
use selvedge_kit::ip::Av;

/// The entry of an address-vector index that is not resolved.
const UNRESOLVED: u32 = u32::MAX;

/// The peers of an endpoint; the index of a peer is its source in the matcher.
#[derive(Debug)]
pub(crate) struct Peers {
    /// `None` for a connected (`FI_EP_MSG`) endpoint.
    av: Option<Arc<Av>>,
    list: Vec<Peer>,
    by_name: FxHashMap<SocketAddr, u32>,
    /// By address-vector index; [`UNRESOLVED`] for indices that no operation has used.
    by_addr: Vec<u32>,
    /// The address-vector epoch for which `by_addr` and `by_context` are valid.
    epoch: u64,
    /// By address of a scalable endpoint's context; these addresses are not small integers.
    by_context: FxHashMap<FiAddr, u32>,
    /// The index at which the next search for a reusable entry begins.
    next_search: usize,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    /// The connection that carries operations to the peer.
    pub(crate) connection: Option<usize>,
    /// Whether the last connection with the peer ended or failed, and no new one exists.
    pub(crate) is_disconnected: bool,
    /// The number of the peer's context within its scalable endpoint; 0 if unknown.
    context: u16,
    fi_addr: FiAddr,
    fi_epoch: u64,
}

impl Peers {
    pub(crate) fn new(av: Option<Arc<Av>>) -> Self {
        Self {
            av,
            list: Vec::new(),
            by_name: FxHashMap::default(),
            by_addr: Vec::new(),
            epoch: 0,
            by_context: FxHashMap::default(),
            next_search: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.list.iter()
    }

    /// Returns the index of the peer that has an address-vector index. A new peer may reuse the
    /// entry of a peer for which `is_needed` returns false.
    ///
    /// # Errors
    /// [`Errno::Inval`] when the address vector has no such index.
    #[inline]
    pub(crate) fn index_of(
        &mut self,
        addr: FiAddr,
        is_needed: impl FnMut(usize) -> bool,
    ) -> Result<usize> {
        let av = self.av.as_ref().ok_or(Errno::NoAv)?;
        if av.epoch() == self.epoch
            && let Some(&index) = self.by_addr.get(addr.0 as usize)
            && index != UNRESOLVED
        {
            return Ok(index as usize);
        }
        self.lookup(addr, is_needed)
    }

    #[cold]
    fn lookup(&mut self, addr: FiAddr, is_needed: impl FnMut(usize) -> bool) -> Result<usize> {
        let av = self.av.as_ref().ok_or(Errno::NoAv)?;
        let epoch = av.epoch();
        if epoch != self.epoch {
            self.by_addr.clear();
            self.by_context.clear();
            self.epoch = epoch;
        }
        if let Some(&index) = self.by_context.get(&addr) {
            return Ok(index as usize);
        }
        let name = av.addr(addr).ok_or(Errno::Inval)?;
        let context = av.context(addr) as u16;
        let index = self.find_or_insert(name, is_needed);
        if context != 0 {
            self.list[index].set_context(context);
            self.by_context.insert(addr, index as u32);
            return Ok(index);
        }
        let index_in_av = addr.0 as usize;
        if index_in_av >= self.by_addr.len() {
            self.by_addr.resize(index_in_av + 1, UNRESOLVED);
        }
        self.by_addr[index_in_av] = index as u32;
        Ok(index)
    }

    /// Returns the index of the peer with a socket address, and adds a new peer if there is none.
    /// A new peer may reuse the entry of a peer for which `is_needed` returns false.
    pub(crate) fn find_or_insert(
        &mut self,
        addr: SocketAddr,
        is_needed: impl FnMut(usize) -> bool,
    ) -> usize {
        if let Some(&index) = self.by_name.get(&addr) {
            return index as usize;
        }
        let index = self.find_reusable(is_needed).unwrap_or(self.list.len());
        match self.list.get_mut(index) {
            Some(peer) => {
                self.by_name.remove(&peer.addr);
                *peer = Peer::new(addr);
            }
            None => self.list.push(Peer::new(addr)),
        }
        self.by_name.insert(addr, index as u32);
        index
    }

    /// Finds an entry to reuse: a peer without a connection, without messages or receives, and not
    /// in the address vector. The search checks only the next few entries, which is enough to keep
    /// short-lived peers from accumulating.
    fn find_reusable(&mut self, mut is_needed: impl FnMut(usize) -> bool) -> Option<usize> {
        const CANDIDATES: usize = 4;
        let (len, start) = (self.list.len(), self.next_search);
        self.next_search = start.wrapping_add(1);
        (0..CANDIDATES.min(len))
            .map(|step| start.wrapping_add(step) % len)
            .find(|&index| {
                self.list[index].connection.is_none()
                    && self.fi_addr(index) == FiAddr::UNSPEC
                    && !is_needed(index)
            })
    }

    /// Returns the peer's address-vector index, which is resolved again when the vector has
    /// changed.
    #[inline]
    pub(crate) fn fi_addr(&mut self, index: usize) -> FiAddr {
        self.list[index].fi_addr(self.av.as_deref())
    }
}

impl Index<usize> for Peers {
    type Output = Peer;

    #[inline]
    fn index(&self, index: usize) -> &Peer {
        &self.list[index]
    }
}

impl IndexMut<usize> for Peers {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Peer {
        &mut self.list[index]
    }
}

impl Peer {
    fn new(addr: SocketAddr) -> Self {
        Self {
            addr,
            connection: None,
            is_disconnected: false,
            context: 0,
            fi_addr: FiAddr::UNSPEC,
            fi_epoch: u64::MAX,
        }
    }

    #[inline]
    fn fi_addr(&mut self, av: Option<&Av>) -> FiAddr {
        if let Some(av) = av
            && self.fi_epoch != av.epoch()
        {
            self.fi_epoch = av.epoch();
            self.fi_addr = match self.context {
                0 => av.source(&self.addr),
                context => av.context_source(&self.addr, context),
            };
        }
        self.fi_addr
    }

    /// Sets the context number, which the peer has reported or this endpoint has used to address
    /// the peer.
    pub(crate) fn set_context(&mut self, context: u16) {
        if context != self.context {
            self.context = context;
            self.fi_epoch = u64::MAX;
        }
    }

    pub(crate) fn to_address(&self) -> Address {
        Address::Ip(self.addr)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn a_peer_keeps_its_index_while_it_is_connected_or_needed_and_loses_it_afterwards() {
        let mut peers = Peers::new(None);
        let connected = peers.find_or_insert(name(1), |_| true);
        peers[connected].connection = Some(0);
        let needed = peers.find_or_insert(name(2), |_| true);
        for port in 3..20 {
            let index = peers.find_or_insert(name(port), |index| index == needed);
            assert!(index != connected && index != needed, "{index}");
        }
        assert_eq!(peers.len(), 3);
        assert_eq!(peers.find_or_insert(name(1), |_| false), connected);
        assert_eq!(peers.find_or_insert(name(2), |_| false), needed);
    }
}
