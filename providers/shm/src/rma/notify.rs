//! What one-sided operations ask of a peer: whether they may begin, and how it is told of them.

use selvedge::{Errno, Result};

use super::cmd::{Notification, commit_notification};
use crate::peers::peer::{Peer, State as PeerState};

impl Peer {
    /// Whether the peer has our outbox, and its own table of keys is known here.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == PeerState::Connected && self.inbox.is_some() && self.keys.are_complete()
    }

    /// Whether a one-sided operation may begin: nothing behind a fenced one does before that is
    /// over, and a fenced one not before all others are.
    pub(crate) fn check_fence(&mut self, is_fenced: bool) -> Result {
        if (self.is_fenced || is_fenced) && self.has_unfinished() {
            return Err(Errno::Again);
        }
        if std::mem::take(&mut self.is_fenced) {
            self.needs_slow_path = self.wants_notifications;
        }
        Ok(())
    }

    /// Makes sure of room for the notice of what is done without the peer, if it needs one.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub(crate) fn reserve_notification(&mut self, data: Option<u64>) -> Result {
        match self.wants_notifications || data.is_some() {
            true => self.reserve(0).map(drop),
            false => Ok(()),
        }
    }

    /// Tells a peer that counts it of what was done without it; or that data comes with it.
    pub(crate) fn notify(&mut self, notification: Notification) {
        if self.wants_notifications || notification.data.is_some() {
            commit_notification(self.slot(), notification);
        }
    }
}
