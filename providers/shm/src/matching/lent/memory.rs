//! `LentMessage`: a lent message in the hands of the application.

#![expect(unsafe_code, reason = "the promise of the trait of lent memory")]

use std::fmt;
use std::sync::Weak;

use selvedge::{Errno, LentMemory, Result};
use selvedge_kit::shell::Core;

use super::views::{PendingView, peer_index_of};
use crate::endpoint::state::State;
use crate::transfers::status;

/// A lent message. Dropping it gives the message back to its sender, if the endpoint is open and
/// connected to the sender.
pub(crate) struct LentMessage {
    view: PendingView,
    number: usize,
    /// The endpoint that has received the message. A message does not keep the endpoint open.
    core: Weak<Core<State>>,
}

impl LentMessage {
    /// Takes the reported message with this number.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] if there is none.
    pub(crate) fn take(
        state: &mut State,
        core: Weak<Core<State>>,
        number: usize,
    ) -> Result<Box<dyn LentMemory>> {
        let peer = state.peers.get_mut(peer_index_of(number));
        let view = peer.and_then(|peer| peer.views.take(number));
        let view = view.ok_or(Errno::NoEnt)?;
        Ok(Box::new(Self { view, number, core }))
    }
}

// SAFETY: the bytes are a range of a mapping that this value keeps. This process has mapped the
// file read-only, or writes it only for one-sided operations, by atomics and opaque copies.
unsafe impl LentMemory for LentMessage {
    fn base(&self) -> *const u8 {
        self.view.lent.address()
    }

    fn len(&self) -> usize {
        self.view.lent.len()
    }

    fn is_intact(&self) -> bool {
        self.view.lent.is_intact()
    }
}

impl Drop for LentMessage {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        // A forked child cannot lock the state. The message is the parent's.
        let Ok(mut state) = core.state.lock() else {
            return;
        };
        let msg_id = self.view.msg_id;
        if let Some(peer) = state.peers.get_mut(peer_index_of(self.number))
            && peer.views.end(msg_id, self.number)
        {
            peer.respond(peer.incarnation, msg_id, status::DONE);
        }
    }
}

impl fmt::Debug for LentMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentMessage")
            .field("len", &self.len())
            .field("is_intact", &self.is_intact())
            .finish_non_exhaustive()
    }
}
