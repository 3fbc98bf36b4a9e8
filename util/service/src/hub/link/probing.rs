//! `Probing`: finds that a peer has died, over a transport that does not report it.
//!
//! A connection sends a frame without content from time to time. The transport fails it, or refuses
//! it from then on, when the peer's process has ended. A stopped process keeps its connection, which
//! takes the frames.

use std::time::{Duration, Instant};

/// The time between two probes.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the transport refuses everything to a peer that counts as lost then. A connection that
/// is made again takes less.
const REFUSED_MAX: Duration = Duration::from_secs(5);

/// The probes of one connection.
#[derive(Debug, Default)]
pub(super) struct Probing {
    /// When the next probe is due; `None` before the first one is planned.
    next_at: Option<Instant>,
    /// Since when the transport refuses everything to the peer.
    refused_since: Option<Instant>,
}

impl Probing {
    /// Whether a probe is due, and when the next one is.
    pub(super) fn next(&mut self, now: Instant) -> (bool, Instant) {
        match self.next_at {
            Some(at) if now < at => (false, at),
            planned => {
                let next = now + PERIOD;
                self.next_at = Some(next);
                (planned.is_some(), next)
            }
        }
    }

    /// Notes whether the transport refuses everything. Returns whether it does so for too long.
    pub(super) fn is_refused_for_long(&mut self, is_refused: bool, now: Instant) -> bool {
        if !is_refused {
            self.refused_since = None;
            return false;
        }
        let since = *self.refused_since.get_or_insert(now);
        now.saturating_duration_since(since) >= REFUSED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_due_after_each_period() {
        let (mut probing, start) = (Probing::default(), Instant::now());
        assert_eq!(probing.next(start), (false, start + PERIOD));
        assert_eq!(probing.next(start + PERIOD / 2), (false, start + PERIOD));
        assert_eq!(probing.next(start + PERIOD), (true, start + 2 * PERIOD));
    }

    #[test]
    fn a_peer_is_lost_when_everything_is_refused_for_a_time() {
        let (mut probing, start) = (Probing::default(), Instant::now());
        let mut is_lost =
            |is_refused, after| probing.is_refused_for_long(is_refused, start + after);
        assert!(!is_lost(true, Duration::ZERO) && !is_lost(true, REFUSED_MAX / 2));
        assert!(!is_lost(false, REFUSED_MAX / 2), "it has taken a frame");
        assert!(!is_lost(true, REFUSED_MAX));
        assert!(is_lost(true, 2 * REFUSED_MAX));
    }
}
