//! Preconditions of one-sided operations on a peer, and the notifications that it receives of them.

use selvedge::{Errno, Result};

use super::cmd::{Notification, commit_notification};
use crate::peers::peer::{Peer, State as PeerState};

impl Peer {
    /// Whether the peer is connected and its key table is complete.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == PeerState::Connected && self.inbox.is_some() && self.keys.are_complete()
    }

    /// Checks the order that fences demand: an operation after a fenced one starts when that is
    /// over, and a fenced one when all earlier ones are over.
    ///
    /// # Errors
    /// [`Errno::Again`] while an operation that has to precede is outstanding.
    pub(crate) fn check_fence(&mut self, is_fenced: bool) -> Result {
        if (self.is_fenced || is_fenced) && self.has_unfinished() {
            return Err(Errno::Again);
        }
        if std::mem::take(&mut self.is_fenced) {
            self.needs_slow_path = self.wants_notifications;
        }
        Ok(())
    }

    /// Reserves room for the notification of a direct operation, if the peer needs one.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub(crate) fn reserve_notification(&mut self, data: Option<u64>) -> Result {
        match self.wants_notifications || data.is_some() {
            true => self.reserve(0).map(drop),
            false => Ok(()),
        }
    }

    /// Notifies the peer of a direct operation, if it counts them or the operation carries data.
    pub(crate) fn notify(&mut self, notification: Notification) {
        if self.wants_notifications || notification.data.is_some() {
            commit_notification(self.slot(), notification);
        }
    }
}
