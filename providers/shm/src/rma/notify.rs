//! Preconditions of one-sided operations on a peer, and notifications of direct operations.

use selvedge::{Errno, Result};

use super::cmd::{Notification, commit_notification};
use crate::peers::peer::{Peer, State as PeerState};

impl Peer {
    /// Whether the peer is connected and its key table is complete.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.state == PeerState::Connected && self.inbox.is_some() && self.keys.are_complete()
    }

    /// Checks the order that fences demand: a fenced operation starts when all earlier operations
    /// are complete, and an operation after a fenced one starts when the fenced one is complete.
    ///
    /// # Errors
    /// [`Errno::Again`] while an operation that has to precede is incomplete.
    pub(crate) fn check_fence(&mut self, is_fenced: bool) -> Result {
        if (self.is_fenced || is_fenced) && self.has_unfinished() {
            return Err(Errno::Again);
        }
        if std::mem::take(&mut self.is_fenced) {
            self.needs_slow_path = self.wants_notifications;
        }
        Ok(())
    }

    /// Reserves a slot for the notification of a direct operation, if the peer gets one.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub(crate) fn reserve_notification(&mut self, data: Option<u64>) -> Result {
        if self.wants_notifications || data.is_some() {
            self.reserve(0).map(drop)
        } else {
            Ok(())
        }
    }

    /// Notifies the peer of a direct operation, if the peer requests notifications or the operation
    /// carries remote data.
    pub(crate) fn notify(&mut self, notification: Notification) {
        if self.wants_notifications || notification.data.is_some() {
            commit_notification(self.slot(), notification);
        }
    }
}
