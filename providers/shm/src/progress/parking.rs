//! `Parking`: parks threads that wait for an endpoint, and arms peers to wake them.
//!
//! Before a thread parks, the endpoint arms every peer: the peer then wakes the endpoint with its
//! next command. The endpoint polls each armed peer a last time. A wake-up is a packet over the
//! peer's socket. The peer's other packets and its disconnect wake the thread as well, because a
//! parked thread waits on the endpoint's `epoll(7)` descriptor. A peer sends one wake-up each time
//! it is armed. [`crate::smr::parking`] describes the protocol among the threads that are parked
//! for one endpoint.
//!
//! `Parking` holds the state; [`crate::progress`] decides when a thread may park.

use selvedge_kit::Ep;

use crate::peers::Peers;
use crate::peers::peer::Peer;
use crate::smr::parking;
use crate::smr::poll_state::fence_before_last_poll;

/// The parked threads of an endpoint, and the peers that wake them.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    threads: parking::Parking,
    /// Whether a thread has ever parked. From then on unpolled peers are armed, too.
    was_armed: bool,
    /// Whether armed peers may have missed that they are armed.
    is_unfenced: bool,
    /// The number of the last armed wake-up.
    epoch: u64,
    /// Unpolled peers that were armed and not polled since.
    unsettled: Vec<u32>,
}

impl Parking {
    /// See [`parking::Parking::has_polled_since`].
    pub(crate) fn has_polled_since(&self, seen: &mut u64) -> bool {
        self.threads.has_polled_since(seen)
    }

    /// See [`parking::Parking::may_park`].
    pub(crate) fn may_park(&self) -> bool {
        self.threads.may_park()
    }

    /// See [`parking::Parking::park_unbounded`].
    pub(crate) fn park_unbounded(&mut self) {
        self.threads.park_unbounded();
    }

    /// See [`parking::Parking::is_unbounded`].
    #[inline]
    pub(crate) fn is_unbounded(&self) -> bool {
        self.threads.is_unbounded()
    }

    /// Whether threads may be parked.
    pub(crate) fn is_armed(&self) -> bool {
        self.threads.is_armed()
    }

    /// Whether a peer may have missed that it is armed.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_unfenced || !self.unsettled.is_empty()
    }

    /// Wakes parked threads, so that they make progress.
    #[inline]
    pub(crate) fn wake(&mut self, ep: &Ep) {
        if self.threads.is_armed() {
            self.threads.wake();
            ep.wake();
        }
    }

    /// Records that a peer's wake-up is spent. Wakes the parked threads, which relied on it.
    pub(crate) fn spend(&mut self, ep: &Ep) {
        if self.threads.spend() {
            ep.wake();
        }
    }

    /// Arms every peer that is not armed yet. The caller polls [`Self::take_unsettled`] before a
    /// thread parks.
    pub(crate) fn arm(&mut self, peers: &mut Peers, polled: &[u32]) {
        if !std::mem::replace(&mut self.was_armed, true) {
            peers.iter_mut().for_each(|peer| self.arm_unpolled(peer));
        }
        self.threads.arm();
        let mut is_newly_armed = !self.unsettled.is_empty();
        for &index in polled {
            is_newly_armed |= self.arm_peer(&mut peers[index as usize]);
        }
        if is_newly_armed && !fence_before_last_poll() {
            self.is_unfenced = true;
        }
    }

    /// Disarms the polled peers, because a thread that does not park makes progress. Returns
    /// whether they were armed.
    pub(crate) fn disarm(&mut self, peers: &mut Peers, polled: &[u32], ep: &Ep) -> bool {
        let was_armed = self.threads.disarm();
        if was_armed {
            for &index in polled {
                peers[index as usize].disarm_wake_up(true);
            }
            ep.wake();
        }
        was_armed
    }

    /// Arms a peer that is not polled any more, if a thread has ever parked.
    pub(crate) fn arm_unpolled(&mut self, peer: &mut Peer) {
        if self.was_armed
            && !peer.is_polled
            && self.arm_peer(peer)
            && !std::mem::replace(&mut peer.is_unpolled_since_arm, true)
        {
            self.unsettled.push(peer.index);
        }
    }

    /// Arms one peer. Returns whether it was not armed before.
    fn arm_peer(&mut self, peer: &mut Peer) -> bool {
        let (Some(out), Some(inbox)) = (&peer.out, &peer.inbox) else {
            return false;
        };
        let epoch = &mut self.epoch;
        let is_newly_armed = peer.wake_up.arm(&out.region, || {
            *epoch += 1;
            *epoch
        });
        self.is_unfenced |= is_newly_armed && !inbox.region.is_fenced();
        is_newly_armed
    }

    /// Takes the peers that were armed and not polled since.
    pub(crate) fn take_unsettled(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unsettled)
    }

    /// Records that an armed peer was polled. The peer stays unsettled if it is not in the polled
    /// set and has commands for which there was no room.
    pub(crate) fn settle(&mut self, peer: &mut Peer) {
        peer.is_unpolled_since_arm = !peer.is_polled && peer.has_commands();
        if peer.is_unpolled_since_arm {
            self.unsettled.push(peer.index);
        }
    }
}
