//! Per-peer state, and posts that wait for room in the provider's queues.

use std::collections::VecDeque;

use selvedge::{FiAddr, Iov, IovMut};

use crate::Code;
use crate::ids::OpKey;
use crate::method::{Kind, MethodAddr};

/// All peers, by their index in the address vector.
#[derive(Debug, Default)]
pub(super) struct Peers {
    table: Vec<Peer>,
    /// Peers with queued posts.
    busy: Vec<u32>,
}

/// One peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// It was looked up: another process may be found under its name after a disconnect.
    pub(super) is_named: bool,
    /// A message from it arrived, or a message to it was delivered.
    pub(super) is_connected: bool,
    /// A receive is posted that fails when the peer disconnects.
    pub(super) has_watch: bool,
    /// It connected without a lookup and has disconnected. All its messages have arrived.
    pub(super) has_disconnected: bool,
    /// Error of its last failure: a provider may fail later posts with `NotConn` only.
    pub(super) last_failure: Option<Code>,
    pub(super) sends: VecDeque<Send>,
    pub(super) recvs: VecDeque<Recv>,
    is_busy: bool,
}

/// A send that waits for room.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) key: OpKey,
    pub(super) segments: Vec<Iov>,
    pub(super) tag: i32,
    pub(super) kind: Kind,
}

/// A receive that waits for room.
#[derive(Debug)]
pub(super) struct Recv {
    pub(super) key: OpKey,
    pub(super) segments: Vec<IovMut>,
    pub(super) tag: i32,
}

impl Peers {
    /// The address vector index of a peer.
    #[inline]
    pub(super) const fn addr(addr: MethodAddr) -> FiAddr {
        FiAddr(addr.0 as u64)
    }

    /// Registers a peer that was looked up.
    pub(super) fn insert_named(&mut self, addr: FiAddr) -> MethodAddr {
        let addr = self.insert(addr);
        let peer = &mut self.table[addr.0 as usize];
        (peer.is_named, peer.has_disconnected) = (true, false);
        addr
    }

    /// Registers a peer that is in the address vector.
    pub(super) fn insert(&mut self, addr: FiAddr) -> MethodAddr {
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

    /// Forgets a peer and its queued posts.
    pub(super) fn forget(&mut self, addr: MethodAddr) {
        if let Some(peer) = self.table.get_mut(addr.0 as usize) {
            *peer = Peer::default();
        }
        self.busy.retain(|&busy| busy != addr.0);
    }

    /// Whether a watch receive must be posted: the peer connected without a lookup and has none.
    #[inline]
    pub(super) fn needs_watch(&self, addr: FiAddr) -> bool {
        let peer = self.table.get(addr.0 as usize);
        peer.is_some_and(|peer| !peer.is_named && !peer.has_watch)
    }

    /// Whether no further message can arrive from a peer.
    #[inline]
    pub(super) fn has_disconnected(&self, addr: MethodAddr) -> bool {
        let peer = self.table.get(addr.0 as usize);
        peer.is_some_and(|peer| peer.has_disconnected)
    }

    /// Queues a send.
    #[cold]
    pub(super) fn queue_send(&mut self, addr: MethodAddr, send: Send) {
        self.table[addr.0 as usize].sends.push_back(send);
        self.mark_busy(addr);
    }

    /// Queues a receive.
    #[cold]
    pub(super) fn queue_recv(&mut self, addr: MethodAddr, recv: Recv) {
        self.table[addr.0 as usize].recvs.push_back(recv);
        self.mark_busy(addr);
    }

    fn mark_busy(&mut self, addr: MethodAddr) {
        let peer = &mut self.table[addr.0 as usize];
        if !std::mem::replace(&mut peer.is_busy, true) {
            self.busy.push(addr.0);
        }
    }

    /// Whether a post is queued.
    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Takes the list of peers with queued posts. The caller returns each peer with
    /// [`Self::requeue`].
    pub(super) fn take_busy(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.busy)
    }

    /// Returns a peer to the list if it has queued posts.
    pub(super) fn requeue(&mut self, index: u32) {
        let peer = &mut self.table[index as usize];
        peer.is_busy = !peer.sends.is_empty() || !peer.recvs.is_empty();
        if peer.is_busy {
            self.busy.push(index);
        }
    }

    /// Removes a queued operation. Returns whether it was queued.
    pub(super) fn remove_queued(&mut self, key: OpKey) -> bool {
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
