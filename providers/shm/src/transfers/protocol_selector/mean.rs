//! The mean time of a message.

use std::time::Duration;

/// Nanoseconds per message, as a mean with exponential decay.
///
/// The mean is a quotient of sums, and not a mean of single times: of several messages that are
/// outstanding together, the last ones seem to take no time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DecayingMean {
    nanos: f32,
    messages: f32,
    /// The times of the last two single messages.
    last_singles: [f32; 2],
}

/// The factor by which a message's weight decays with each later message.
const DECAY: f32 = 0.9;

impl DecayingMean {
    /// Adds a message whose time depends on other messages that are outstanding.
    pub(super) fn add(&mut self, duration: Duration) {
        self.add_nanos(duration.as_nanos() as f32);
    }

    /// Adds a message that was outstanding alone. Counts the median of its time and the two
    /// previous ones: a preempted processor makes a single message many times as long.
    pub(super) fn add_single(&mut self, duration: Duration) {
        let nanos = self.next_median(duration);
        self.add_nanos(nanos);
    }

    /// Notes the time of a single message that is not counted.
    pub(super) fn note_single(&mut self, duration: Duration) {
        self.next_median(duration);
    }

    /// Whether the mean counts at least one message.
    pub(super) fn is_known(&self) -> bool {
        self.messages > 0.0
    }

    /// Returns the mean in nanoseconds per message; 0 without measurements, so that the protocol is
    /// probed.
    pub(super) fn nanos(&self) -> f32 {
        if self.is_known() {
            self.nanos / self.messages
        } else {
            0.0
        }
    }

    fn add_nanos(&mut self, nanos: f32) {
        self.nanos = self.nanos * DECAY + nanos;
        self.messages = self.messages * DECAY + 1.0;
    }

    fn next_median(&mut self, duration: Duration) -> f32 {
        let nanos = duration.as_nanos() as f32;
        let [older, newer] = self.last_singles;
        self.last_singles = [newer, nanos];
        let (low, high) = (older.min(newer), older.max(newer));
        if low > 0.0 {
            nanos.clamp(low, high)
        } else {
            nanos
        }
    }
}
