//! `Parking`: how threads that wait for an endpoint are parked, and how peers wake them.
//!
//! Before a thread parks, every peer whose commands are read is told to wake the endpoint with the
//! next one, and then polled a last time. A wake-up is a packet over the socket to the peer, whose
//! other packets and whose end wake as well: a parked thread waits on the endpoint's `epoll(7)`
//! descriptor. A peer sends one wake-up, and the next one when it was told again.
//! [`crate::smr::parking`] says what the threads that are parked for one endpoint owe each other.
//!
//! `Parking` keeps what was promised; when a thread may park, [`crate::progress`] decides.

use selvedge_kit::Ep;

use crate::peers::Peers;
use crate::peers::peer::Peer;
use crate::smr::parking;
use crate::smr::poll_state::fence_before_last_poll;

/// The parked threads of an endpoint, and the peers that wake them.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    threads: parking::Parking,
    /// Whether a thread has ever parked: peers that are not polled are told to wake the endpoint from
    /// then on.
    was_armed: bool,
    /// Peers may not have noticed that they are to wake the endpoint.
    is_unfenced: bool,
    /// The number of the last wake-up that peers were asked for.
    epoch: u64,
    /// Peers that were asked to wake the endpoint, and were not polled since.
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

    /// Whether threads may be parked at all.
    pub(crate) fn is_armed(&self) -> bool {
        self.threads.is_armed()
    }

    /// Whether a peer may have missed that it is to wake the endpoint.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.is_unfenced || !self.unsettled.is_empty()
    }

    /// Has parked threads see to what was left to progress.
    #[inline]
    pub(crate) fn wake(&mut self, ep: &Ep) {
        if self.threads.is_armed() {
            self.threads.wake();
            ep.wake();
        }
    }

    /// A peer does not wake the endpoint any more. Threads that are parked relied on it.
    pub(crate) fn spend(&mut self, ep: &Ep) {
        if self.threads.spend() {
            ep.wake();
        }
    }

    /// Tells every peer to wake the endpoint that was not told yet. [`Self::take_unsettled`] has to
    /// be polled before a thread parks.
    pub(crate) fn arm(&mut self, peers: &mut Peers, polled: &[u32]) {
        if !std::mem::replace(&mut self.was_armed, true) {
            peers.iter_mut().for_each(|peer| self.arm_unpolled(peer));
        }
        self.threads.arm();
        let mut newly_armed = !self.unsettled.is_empty();
        for &index in polled {
            newly_armed |= self.arm_peer(&mut peers[index as usize]);
        }
        if newly_armed && !fence_before_last_poll() {
            self.is_unfenced = true;
        }
    }

    /// A thread makes progress that does not park: no peer needs to wake the endpoint. Whether peers
    /// were to.
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

    /// A peer is not polled any more: once a thread has parked here, it is to wake the endpoint.
    pub(crate) fn arm_unpolled(&mut self, peer: &mut Peer) {
        if self.was_armed
            && !peer.is_polled
            && self.arm_peer(peer)
            && !std::mem::replace(&mut peer.is_unpolled_since_arm, true)
        {
            self.unsettled.push(peer.index);
        }
    }

    /// Whether the peer had to be told.
    fn arm_peer(&mut self, peer: &mut Peer) -> bool {
        let (Some(out), Some(inbox)) = (&peer.out, &peer.inbox) else {
            return false;
        };
        let epoch = &mut self.epoch;
        let newly_armed = peer.wake_up.arm(&out.region, || {
            *epoch += 1;
            *epoch
        });
        self.is_unfenced |= newly_armed && !inbox.region.is_fenced();
        newly_armed
    }

    /// The peers that were told to wake the endpoint and were not polled since.
    pub(crate) fn take_unsettled(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unsettled)
    }

    /// One of them was polled. It stays among them if it is not polled at every turn and has sent
    /// something that had no place so far.
    pub(crate) fn settle(&mut self, peer: &mut Peer) {
        peer.is_unpolled_since_arm = !peer.is_polled && peer.has_commands();
        if peer.is_unpolled_since_arm {
            self.unsettled.push(peer.index);
        }
    }
}
