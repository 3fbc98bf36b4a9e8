//! The poll state: a word in a region by which the owner publishes whether it polls its peer's
//! queue, needs the doorbell, or is parked and must be woken. The owner writes the word, and the
//! peer reads it.
//!
//! A peer reads the word after a commit. While the owner polls, the peer does nothing else.
//! Otherwise the peer sets the doorbell bit. If the owner is parked, the peer also wakes it, over a
//! channel that the caller chooses, once in each *epoch*. The owner numbers its epochs, because a
//! peer sends only one wake-up in each: after a wake-up the owner begins a new epoch before it
//! parks again.
//!
//! Two fences ensure that no wake-up is lost. The peer's fence is between its commit and its load
//! of the word. The owner's fence is between publishing the parked state and its last poll of the
//! queue ([`fence_before_last_poll`]). The peer's fence is a compiler fence and costs nothing,
//! because the owner's fence takes effect on the peer's processor, too. Where the system does not
//! support this ([`PeerRegion::is_fenced`]), the owner must bound the time for which it parks.
//!
//! # Examples
//!
//! ```
//! use selvedge_shm::smr::poll_state::{WakeRecord, fence_before_last_poll};
//! use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};
//!
//! let sizes = Sizes { cmd_count: 16, resp_count: 16, inject_size: 4096 };
//! let region = Region::create(&Attr { sizes, peer: "b" })?;
//! let (fd, sizes) = region.share()?;
//! let (attached, mut record) = (PeerRegion::attach(fd, sizes)?, WakeRecord::default());
//!
//! region.set_parked(1);
//! fence_before_last_poll();
//! let epoch = record.epoch_to_wake(&attached).expect("the owner is parked");
//! // The peer wakes the owner here, and records the wake-up.
//! record.record_wake(epoch);
//! assert_eq!(record.epoch_to_wake(&attached), None);
//!
//! region.set_parked(2);
//! assert_eq!(record.epoch_to_wake(&attached), Some(2));
//! # Ok::<(), selvedge::Error>(())
//! ```

use super::doorbell::Bell;
use crate::smr::layout::word;
use crate::smr::region::{PeerRegion, Region};
use crate::smr::sync::{Ordering, Words, order};

/// The owner does not poll the queue.
const UNPOLLED: u64 = 0;
/// The owner polls the queue at every progress call. A larger value means that the owner is parked:
/// it is the epoch plus 1.
const POLLED: u64 = 1;

impl Region {
    /// Publishes whether the owner polls the peer's queue. If it does, the peer need not ring.
    pub fn set_polled(&self, is_polled: bool) {
        let value = if is_polled { POLLED } else { UNPOLLED };
        self.set_poll_state(value);
    }

    /// Publishes that the owner is parked, or may park, and must be woken. Epochs begin with 1 and
    /// are never reused. [`fence_before_last_poll`] must follow.
    pub fn set_parked(&self, epoch: u64) {
        self.set_poll_state(POLLED + epoch);
    }

    fn set_poll_state(&self, value: u64) {
        self.header()
            .word(word::POLL_STATE)
            .store(value, Ordering::Relaxed);
    }
}

/// An owner's record of the wake-up that it has requested from one peer. The record and the poll
/// state in the owner's region change together, because a peer wakes the owner only in the parked
/// state.
#[derive(Debug, Default)]
pub struct WakeUp {
    is_armed: bool,
}

impl WakeUp {
    /// Requests a wake-up from the peer in a new epoch, unless one is requested already. Returns
    /// `true` if the poll state has changed: then [`fence_before_last_poll`] and a poll of the
    /// peer's queue must follow.
    pub fn arm(&mut self, region: &Region, epoch: impl FnOnce() -> u64) -> bool {
        let is_new = !std::mem::replace(&mut self.is_armed, true);
        if is_new {
            region.set_parked(epoch());
        }
        is_new
    }

    /// Withdraws the request and publishes whether the owner polls the peer's queue.
    pub fn disarm(&mut self, region: &Region, is_polled: bool) {
        self.is_armed = false;
        region.set_polled(is_polled);
    }

    /// Records that the peer has woken the owner or is disconnected.
    pub fn spend(&mut self) {
        self.is_armed = false;
    }
}

/// Fences between publishing the parked state and the last poll of the peers' queues. Returns
/// `false` if a peer may miss the parked state in spite of the fence.
pub fn fence_before_last_poll() -> bool {
    order::after_arm()
}

impl PeerRegion {
    /// Whether the peer polls this endpoint's queue. The caller calls this after a commit, and
    /// before [`WakeRecord::epoch_to_wake`].
    #[inline(always)]
    pub fn is_polling(&self) -> bool {
        self.poll_state() == POLLED
    }

    /// Announces a commit to a peer that never parks: sets the doorbell bit unless the peer polls.
    /// A peer that stops polling at this moment may miss the commit; its next sweep of all queues
    /// finds it.
    #[inline]
    pub fn announce(&self, bell: &Bell) {
        if self.header().word(word::POLL_STATE).load(Ordering::Relaxed) != POLLED {
            bell.ring();
        }
    }

    /// Returns the peer's poll state as an object that can outlive the `PeerRegion`.
    pub fn parked_flag(&self) -> ParkedFlag {
        ParkedFlag {
            header: self.header().clone(),
        }
    }

    /// Whether [`fence_before_last_poll`] takes effect in the peer's process.
    pub fn is_fenced(&self) -> bool {
        self.header().word(word::FENCED).load(Ordering::Relaxed) != 0
    }

    /// Loads the poll state after a commit.
    #[inline(always)]
    fn poll_state(&self) -> u64 {
        order::after_commit();
        self.header().word(word::POLL_STATE).load(Ordering::Relaxed)
    }
}

/// The poll state of a region's owner, for a sender that does not hold the region.
#[derive(Debug)]
pub struct ParkedFlag {
    header: Words,
}

impl ParkedFlag {
    /// Whether the owner may have to be woken; [`WakeRecord::epoch_to_wake`] decides. The caller
    /// calls this after a commit.
    #[inline(always)]
    pub fn may_be_parked(&self) -> bool {
        order::after_commit();
        self.header.word(word::POLL_STATE).load(Ordering::Relaxed) > POLLED
    }
}

/// A peer's record of the last epoch in which it has woken an owner.
#[derive(Debug, Default)]
pub struct WakeRecord {
    /// The epoch of the last wake-up.
    last_epoch: u64,
}

impl WakeRecord {
    /// Returns the epoch of the owner's parked state, if the owner has to be woken. The caller
    /// calls this after a commit.
    #[inline]
    pub fn epoch_to_wake(&self, owner: &PeerRegion) -> Option<u64> {
        match owner.poll_state() {
            UNPOLLED | POLLED => None,
            value => Some(value - POLLED).filter(|&epoch| epoch != self.last_epoch),
        }
    }

    /// Records that the owner was woken in this epoch.
    pub fn record_wake(&mut self, epoch: u64) {
        self.last_epoch = epoch;
    }
}
