//! The state of each peer, and the queues of posts that wait for room in the provider.

use std::collections::VecDeque;

use selvedge::{FiAddr, Iov, IovMut};

use crate::Code;
use crate::ids::OpKey;
use crate::method::{Kind, MethodAddr};

/// All peers, by their index in the address vector.
#[derive(Debug, Default)]
pub(super) struct Peers {
    table: Vec<Peer>,
    /// The indices of peers with queued posts.
    backlogged: Vec<u32>,
}

/// One peer.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The application looked the peer up by its name. After a disconnect, another process may have
    /// that name.
    pub(super) is_named: bool,
    /// A message from the peer arrived, or a message to the peer was delivered.
    pub(super) is_connected: bool,
    /// A watch is posted: a receive that matches no message and fails when the peer disconnects.
    pub(super) has_watch: bool,
    /// The peer connected without a lookup and has disconnected. All its messages have arrived.
    pub(super) has_disconnected: bool,
    /// The code of the peer's last failure. It explains the failure of later posts, which a
    /// provider may report with `NotConn` only.
    pub(super) last_failure: Option<Code>,
    pub(super) sends: VecDeque<Send>,
    pub(super) recvs: VecDeque<Recv>,
    /// The peer is in [`Peers::backlogged`].
    is_backlogged: bool,
}

/// A send that waits for room in the provider's queue.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) key: OpKey,
    pub(super) segments: Vec<Iov>,
    pub(super) tag: i32,
    pub(super) kind: Kind,
}

/// A receive that waits for room in the provider's queue.
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
        self.backlogged.retain(|&index| index != addr.0);
    }

    /// Whether a watch must be posted: the peer connected without a lookup and has no watch yet.
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
        self.mark_backlogged(addr);
    }

    /// Queues a receive.
    #[cold]
    pub(super) fn queue_recv(&mut self, addr: MethodAddr, recv: Recv) {
        self.table[addr.0 as usize].recvs.push_back(recv);
        self.mark_backlogged(addr);
    }

    fn mark_backlogged(&mut self, addr: MethodAddr) {
        let peer = &mut self.table[addr.0 as usize];
        if !std::mem::replace(&mut peer.is_backlogged, true) {
            self.backlogged.push(addr.0);
        }
    }

    /// Whether posts of any peer are queued.
    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlogged.is_empty()
    }

    /// Takes the list of peers with queued posts, and leaves it empty. The caller gives each peer
    /// back with [`Self::requeue`].
    pub(super) fn take_backlogged(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.backlogged)
    }

    /// Puts a peer back into the list if it still has queued posts.
    pub(super) fn requeue(&mut self, index: u32) {
        let peer = &mut self.table[index as usize];
        peer.is_backlogged = !peer.sends.is_empty() || !peer.recvs.is_empty();
        if peer.is_backlogged {
            self.backlogged.push(index);
        }
    }

    /// Removes a queued operation. Returns whether it was queued.
    pub(super) fn remove_queued(&mut self, key: OpKey) -> bool {
        for &index in &self.backlogged {
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
