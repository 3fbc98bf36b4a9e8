//! `Parking`: whether the threads of an owner may park and rely on the owner's peers to wake them.
//!
//! All threads that are parked for one endpoint, at any queue or counter, rely on the same
//! wake-ups: each peer wakes the owner once, with its next command ([`super::poll_state`]). One
//! thread may consume such a wake-up, or publish that it polls the peer again. It thereby takes the
//! wake-up from all parked threads. The thread therefore wakes them at once, while it still holds
//! the endpoint's lock, because it may never make progress again. A woken thread arms the peers
//! again before it parks.
//!
//! The endpoint's lock protects a `Parking`. A `Parking` holds no threads; its caller wakes them.

/// The wake-ups that the threads parked for one endpoint rely on.
#[derive(Debug, Default)]
pub struct Parking {
    /// Whether wake-ups are requested from the peers, and no thread has polled since.
    is_armed: bool,
    /// Whether the wake-up of at least one peer is consumed while the others are armed.
    is_spent: bool,
    /// Whether threads are parked without a timeout.
    is_unbounded: bool,
    /// The number of polls by threads that do not park.
    polls: u64,
}

impl Parking {
    /// Records that a wake-up is requested from every peer. The caller must poll the queues once
    /// more before it calls [`Self::may_park`].
    pub fn arm(&mut self) {
        self.is_armed = true;
        self.is_spent = false;
    }

    /// Whether all armed wake-ups are still outstanding.
    pub fn may_park(&self) -> bool {
        self.is_armed && !self.is_spent
    }

    /// Records that a peer's wake-up is consumed: the peer has woken the owner, or the owner has
    /// published that it polls the peer. Returns whether the caller must wake the parked threads.
    #[must_use]
    pub fn spend(&mut self) -> bool {
        let was_spent = std::mem::replace(&mut self.is_spent, true);
        let must_wake = self.is_armed && !was_spent;
        if must_wake {
            self.wake();
        }
        must_wake
    }

    /// Records a poll by a thread that does not park: no peer needs to wake the owner. Returns
    /// whether the caller must disarm the peers and wake the parked threads.
    #[must_use]
    pub fn disarm(&mut self) -> bool {
        self.polls += 1;
        self.is_spent = false;
        let was_armed = std::mem::take(&mut self.is_armed);
        if was_armed {
            self.wake();
        }
        was_armed
    }

    /// Whether threads may be parked.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Records that a thread parks without a timeout.
    pub fn park_unbounded(&mut self) {
        self.is_unbounded = true;
    }

    /// Whether threads are parked without a timeout. The caller must wake them for progress that no
    /// peer announces.
    #[inline]
    pub fn is_unbounded(&self) -> bool {
        self.is_unbounded
    }

    /// Records that the parked threads are woken. They call [`Self::may_park`] again before they
    /// park.
    pub fn wake(&mut self) {
        self.is_unbounded = false;
    }

    /// Whether another thread has polled since the count of polls was `seen`. Updates `seen` to the
    /// present count. A value of 0 stands for a thread that has just polled itself.
    pub fn has_polled_since(&self, seen: &mut u64) -> bool {
        let previous = std::mem::replace(seen, self.polls);
        previous != 0 && previous != self.polls
    }
}
