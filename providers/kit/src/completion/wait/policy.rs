//! How a thread polls that waits for an event.

use std::time::Duration;

use super::SPIN;

/// How threads poll the queues and counters of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollPolicy {
    /// The longest time that a waiting thread polls before it parks.
    pub(crate) spin: Duration,
    /// Whether a program that polls in vain yields the processor to threads that want it.
    pub(crate) yields: bool,
}

impl PollPolicy {
    /// A policy with the longest time that a waiting thread polls before it parks. If `yields`, a
    /// program that polls in vain yields the processor to threads that want it.
    pub const fn new(spin: Duration, yields: bool) -> Self {
        Self { spin, yields }
    }
}

impl Default for PollPolicy {
    fn default() -> Self {
        Self::new(SPIN, true)
    }
}
