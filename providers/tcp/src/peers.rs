//! `Peers`: the peers that an endpoint has met or addressed, by index, by address and by the index of
//! the address vector. It does not connect, and knows no operation.

use std::fmt;
use std::net::SocketAddr;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use selvedge::{Address, Errno, FiAddr, Result};
use selvedge_kit::ip::Av;

/// The entry of an address that was not looked up yet.
const UNKNOWN: u32 = u32::MAX;

/// The peers of an endpoint; the index of a peer is its source in the matcher.
#[derive(Debug)]
pub(crate) struct Peers {
    /// None for an endpoint with a connection of the application's.
    av: Option<Arc<Av>>,
    list: Vec<Peer>,
    by_name: FxHashMap<SocketAddr, u32>,
    /// By index of the address vector; [`UNKNOWN`] where it was not looked up yet.
    by_addr: Vec<u32>,
    /// The version of the address vector that `by_addr` and `by_context` belong to.
    epoch: u64,
    /// The same for contexts of scalable endpoints, whose addresses are no small indices.
    by_context: FxHashMap<FiAddr, u32>,
    /// Where the next search for a free place begins.
    next_search: usize,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) addr: SocketAddr,
    /// The connection that operations go to.
    pub(crate) connection: Option<usize>,
    /// The last connection with the peer has ended, or could not be made, and there is none since.
    pub(crate) is_disconnected: bool,
    /// Which context of a scalable endpoint it is, as far as is known.
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

    /// The peer at an index of the address vector. A new peer may take the place of one that
    /// `is_needed` does not name.
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
            && index != UNKNOWN
        {
            return Ok(index as usize);
        }
        self.look_up(addr, is_needed)
    }

    #[cold]
    fn look_up(&mut self, addr: FiAddr, is_needed: impl FnMut(usize) -> bool) -> Result<usize> {
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
            self.by_addr.resize(index_in_av + 1, UNKNOWN);
        }
        self.by_addr[index_in_av] = index as u32;
        Ok(index)
    }

    /// The peer with an address, met or not. A new peer may take the place of one that `is_needed`
    /// does not name.
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

    /// The place of a peer that is gone, has left nothing, and is not in the address vector: one of
    /// the next few, so that peers that come and go once do not pile up.
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

    /// The index of a peer in the address vector, looked up again when the vector has changed.
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

    /// The peer has said which context it is, or was addressed as that.
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
