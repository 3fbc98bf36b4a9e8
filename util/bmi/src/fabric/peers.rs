//! Peers: what is known of each, and what waits until there is room to post it.

use std::collections::VecDeque;

use selvedge::{FiAddr, Iov, IovMut};

use crate::Code;
use crate::ids::OpKey;
use crate::method::{Kind, MethodAddr};

/// Every peer, by its index in the address vector.
#[derive(Debug, Default)]
pub(super) struct Peers {
    table: Vec<Peer>,
    /// Peers that something waits for.
    busy: Vec<u32>,
}

/// One peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// It was looked up: it may come back after it has gone.
    pub(super) is_named: bool,
    /// Something of it was heard, or something it was sent has arrived: it is there.
    pub(super) is_met: bool,
    /// A receive is posted that fails when it goes.
    pub(super) has_sentry: bool,
    /// It came by itself and is gone: what it had sent is here, and nothing else will come.
    pub(super) has_gone: bool,
    /// Why it was lost the last time: a provider may refuse later posts without repeating it.
    pub(super) lost_by: Option<Code>,
    pub(super) sends: VecDeque<Send>,
    pub(super) recvs: VecDeque<Recv>,
    is_busy: bool,
}

/// A send for which there was no room.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) key: OpKey,
    pub(super) pieces: Vec<Iov>,
    pub(super) tag: i32,
    pub(super) kind: Kind,
}

/// A receive for which there was no room.
#[derive(Debug)]
pub(super) struct Recv {
    pub(super) key: OpKey,
    pub(super) pieces: Vec<IovMut>,
    pub(super) tag: i32,
}

impl Peers {
    /// The fabric's index of a peer.
    #[inline]
    pub(super) const fn addr(addr: MethodAddr) -> FiAddr {
        FiAddr(addr.0 as u64)
    }

    /// A peer that was looked up.
    pub(super) fn know(&mut self, addr: FiAddr) -> MethodAddr {
        let addr = self.meet(addr);
        let peer = &mut self.table[addr.0 as usize];
        (peer.is_named, peer.has_gone) = (true, false);
        addr
    }

    /// A peer that is in the address vector.
    pub(super) fn meet(&mut self, addr: FiAddr) -> MethodAddr {
        let index = addr.0 as usize;
        if index >= self.table.len() {
            self.table.resize_with(index + 1, Peer::default);
        }
        MethodAddr(index as u32)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, addr: FiAddr) -> Option<&mut Peer> {
        self.table.get_mut(addr.0 as usize)
    }

    /// Forgets a peer, with what waits for it.
    pub(super) fn forget(&mut self, addr: MethodAddr) {
        if let Some(peer) = self.table.get_mut(addr.0 as usize) {
            *peer = Peer::default();
        }
        self.busy.retain(|&busy| busy != addr.0);
    }

    /// Whether a peer has to be watched: it came by itself, and nobody watches it.
    #[inline]
    pub(super) fn lacks_sentry(&self, addr: FiAddr) -> bool {
        let peer = self.table.get(addr.0 as usize);
        peer.is_some_and(|peer| !peer.is_named && !peer.has_sentry)
    }

    /// Whether nothing of a peer is to come any more.
    #[inline]
    pub(super) fn has_gone(&self, addr: MethodAddr) -> bool {
        let peer = self.table.get(addr.0 as usize);
        peer.is_some_and(|peer| peer.has_gone)
    }

    /// Has a send wait.
    #[cold]
    pub(super) fn hold_send(&mut self, addr: MethodAddr, send: Send) {
        self.table[addr.0 as usize].sends.push_back(send);
        self.stir(addr);
    }

    /// Has a receive wait.
    #[cold]
    pub(super) fn hold_recv(&mut self, addr: MethodAddr, recv: Recv) {
        self.table[addr.0 as usize].recvs.push_back(recv);
        self.stir(addr);
    }

    fn stir(&mut self, addr: MethodAddr) {
        let peer = &mut self.table[addr.0 as usize];
        if !std::mem::replace(&mut peer.is_busy, true) {
            self.busy.push(addr.0);
        }
    }

    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_calm(&self) -> bool {
        self.busy.is_empty()
    }

    /// The peers that something waits for. Those that it still waits for afterwards have to be
    /// given back.
    pub(super) fn take_busy(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.busy)
    }

    /// Gives a peer back, if something waits for it.
    pub(super) fn put_back(&mut self, index: u32) {
        let peer = &mut self.table[index as usize];
        peer.is_busy = !peer.sends.is_empty() || !peer.recvs.is_empty();
        if peer.is_busy {
            self.busy.push(index);
        }
    }

    /// Takes an operation back that waits. Says whether it did.
    pub(super) fn withdraw(&mut self, key: OpKey) -> bool {
        for &index in &self.busy {
            let peer = &mut self.table[index as usize];
            if let Some(at) = peer.sends.iter().position(|send| send.key == key) {
                peer.sends.remove(at);
                return true;
            }
            if let Some(at) = peer.recvs.iter().position(|recv| recv.key == key) {
                peer.recvs.remove(at);
                return true;
            }
        }
        false
    }
}
