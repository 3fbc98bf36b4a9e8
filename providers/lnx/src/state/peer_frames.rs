//! The frames to a peer that its link has not completed, or has refused.

use std::time::{Duration, Instant};

use selvedge::FiAddr;

use crate::config::Timeouts;
use crate::link::Frame;
use crate::state::operations::AfterSend;

/// The link and the address index of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) link: usize,
    pub(crate) link_addr: FiAddr,
}

/// A frame that waits for its link.
#[derive(Debug)]
pub(crate) struct RefusedFrame {
    pub(crate) frame: Frame,
    pub(crate) after: AfterSend,
}

/// The state of the frames to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reachability {
    /// Frames that the link has not completed.
    pub(crate) in_flight: usize,
    /// Whether the link has completed a frame.
    pub(crate) was_connected: bool,
    /// The time of the first refusal since the link took a frame.
    refused_since: Option<Instant>,
}

impl Reachability {
    /// The link has taken a frame.
    pub(crate) fn posted(&mut self) {
        self.in_flight += 1;
        self.refused_since = None;
    }

    /// The link has completed a frame.
    pub(crate) fn sent(&mut self) {
        self.in_flight -= 1;
        self.was_connected = true;
    }

    /// A frame has failed.
    pub(crate) fn frame_ended(&mut self) {
        self.in_flight -= 1;
    }

    /// Whether the link has refused frames for too long, while it has none to this peer.
    pub(crate) fn has_failed(&mut self, now: Instant, timeouts: Timeouts) -> Option<Duration> {
        if self.in_flight > 0 {
            self.refused_since = None;
            return None;
        }
        let since = *self.refused_since.get_or_insert(now);
        let timeout = if self.was_connected {
            timeouts.lost
        } else {
            timeouts.connect
        };
        (now.duration_since(since) >= timeout).then_some(timeout)
    }
}
