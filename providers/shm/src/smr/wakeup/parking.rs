//! Parking: whether threads that rely on an owner's peers to wake them may sleep.
//!
//! Threads that are parked for one endpoint, at whatever queue or counter, rely on the same
//! wake-ups: each peer was told to wake the owner with its next command ([`super::attention`]), and
//! does so once. A thread that consumes that wake-up, or that tells a peer that it is polled again,
//! takes the wake-up from all of them. So it wakes them at once, while it still holds the endpoint's
//! lock: it may never make progress again. A thread that is woken arms the peers anew
//! before it parks.
//!
//! The struct is protected by the endpoint's lock and holds no thread; what it asks for, the caller
//! carries out.

/// The wake-ups that the threads parked for one endpoint rely on.
#[derive(Debug, Default)]
pub struct Parking {
    /// Peers were told to wake the owner, and it has not been polling since.
    is_armed: bool,
    /// A peer does not wake the owner any more though the others do.
    is_spent: bool,
    /// Threads are parked that nothing but a wake-up ends.
    is_unbounded: bool,
    /// How often a thread that does not park was seen to poll.
    polls: u64,
}

impl Parking {
    /// Every peer is told to wake the owner. Their queues must be polled a last time before
    /// [`Self::may_park`] counts.
    pub fn arm(&mut self) {
        self.is_armed = true;
        self.is_spent = false;
    }

    /// Whether the wake-ups that were armed are still to come.
    pub fn may_park(&self) -> bool {
        self.is_armed && !self.is_spent
    }

    /// A peer does not wake the owner any more: it just has, or was told that it is polled. Says
    /// whether parked threads have to be woken.
    #[must_use]
    pub fn spend(&mut self) -> bool {
        let was_spent = std::mem::replace(&mut self.is_spent, true);
        let wakes = self.is_armed && !was_spent;
        if wakes {
            self.wake();
        }
        wakes
    }

    /// A thread polls that does not park: no peer needs to wake the owner. Says whether peers are to
    /// be told so, and parked threads to be woken.
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

    /// Whether threads may be parked at all.
    pub fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// A thread parks until it is woken.
    pub fn park_unbounded(&mut self) {
        self.is_unbounded = true;
    }

    /// Whether threads are parked that nothing but a wake-up ends, so that what can move without one
    /// has to be told to them.
    #[inline]
    pub fn is_unbounded(&self) -> bool {
        self.is_unbounded
    }

    /// Parked threads are woken, and will ask again.
    pub fn wake(&mut self) {
        self.is_unbounded = false;
    }

    /// Whether a thread has polled since `seen`, which is set to the present; 0 stands for a thread
    /// that has just polled itself.
    pub fn has_polled_since(&self, seen: &mut u64) -> bool {
        let before = std::mem::replace(seen, self.polls);
        before != 0 && before != self.polls
    }
}
