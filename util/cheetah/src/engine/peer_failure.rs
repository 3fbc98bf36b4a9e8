//! Peer failure: detection, notification of the other contexts, and abort of pending operations.
//!
//! The fabric reports the failure of watched peers and of peers with pending operations. A context
//! that detects a failure notifies its barrier neighbours. All contexts are notified after as many
//! steps as a barrier has rounds.

use std::time::Duration;

use super::ops::op::Op;
use super::parts::completion::CompletionKind;
use super::parts::peer::{QueuedInvocation, State};
use super::state::Engine;
use crate::net::wire::WireMessage;
use crate::{Error, Result};

/// Time for draining the messages of a failed peer. The fabric may still hold messages from the
/// peer, for instance a close message, after it refuses messages to the peer.
const DRAIN_TIME: Duration = Duration::from_millis(100);

impl Engine {
    /// Posts a watch, so that the fabric reports the failure of a connected peer.
    pub(super) fn watch(&mut self, peer: usize) {
        if peer == self.rank || self.peers[peer].is_watched {
            return;
        }
        let watched = &self.peers[peer];
        let watched =
            self.nets[watched.net].watch(watched.addr, CompletionKind::Watch(peer).context());
        match watched {
            Ok(()) => self.peers[peer].is_watched = true,
            Err(errno) => log::warn!("context {}: watching {peer}: {errno}", self.rank),
        }
    }

    /// Handles a watch that ended for another reason than a failure of its peer.
    #[cold]
    pub(super) fn watch_ended(&mut self, peer: usize, detail: &str) {
        log::debug!("context {}: watching {peer}: {detail}", self.rank);
        self.peers[peer].is_watched = false;
    }

    /// Checks that operations with context `peer` may be started.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] if that context has failed or finalized.
    #[inline]
    pub(super) fn check_alive(&self, peer: usize) -> Result {
        match self.peers[peer].state {
            State::Connected => Ok(()),
            State::Finalized => Err(self.peer_failed_error(peer, "the context has finalized")),
            State::Failed => Err(match &self.broken {
                Some(error @ Error::PeerFailed { context, .. }) if *context == peer => {
                    error.clone()
                }
                _ => self.peer_failed_error(peer, "the context failed earlier"),
            }),
        }
    }

    /// Fails the suspected peers whose drain time has passed.
    #[cold]
    pub(super) fn fail_suspects(&mut self) {
        for (peer, error, since) in std::mem::take(&mut self.suspects) {
            if since.elapsed() < DRAIN_TIME {
                self.suspects.push((peer, error, since))
            } else {
                self.fail_peer(peer, &error)
            }
        }
    }

    fn peer_failed_error(&self, context: usize, detail: &str) -> Error {
        Error::PeerFailed {
            context,
            size: self.size(),
            detail: detail.to_owned(),
        }
    }

    /// Marks a context as failed, aborts the operations with it, and notifies the others.
    #[cold]
    pub(super) fn fail_peer(&mut self, peer: usize, detail: &str) {
        if self.peers[peer].state != State::Connected || peer == self.rank {
            return;
        }
        let exit_detail = self
            .exit_lookup
            .as_ref()
            .and_then(|exit_lookup| exit_lookup(peer));
        let error = self.peer_failed_error(peer, exit_detail.as_deref().unwrap_or(detail));
        self.peers[peer].state = State::Failed;
        self.abort_peer_ops(peer, &error);
        let Error::PeerFailed { detail, .. } = &error else {
            return;
        };
        let len = detail.len().min(1024);
        let message = WireMessage::PeerFailed {
            context: peer as u32,
        };
        self.broken.get_or_insert_with(|| error.clone());
        for neighbour in self.neighbours() {
            if neighbour != peer {
                self.send(neighbour, &message, &detail.as_bytes()[..len]);
            }
        }
    }

    /// Aborts the operations with a context.
    fn abort_peer_ops(&mut self, peer: usize, error: &Error) {
        let peer_state = &mut self.peers[peer];
        peer_state.forget();
        peer_state
            .fetch_queue
            .retain(|entry| matches!(entry, QueuedInvocation::Ready(_)));
        self.advance(peer);
        let pending = self.ops.iter().filter(|(_, op)| op.peer() == peer);
        let pending: Vec<_> = pending.map(|(&number, _)| number).collect();
        self.fail(error.clone());
        for number in pending {
            // The fabric still owns the memory of a posted operation, which completes with an error
            // later.
            if self.is_moving(number) {
                continue;
            }
            if let Some(op) = self.ops.remove(&number) {
                self.abort_op(op, error);
            }
        }
    }

    /// Handles another context's report of a failed context.
    pub(super) fn on_peer_failed(&mut self, context: u32, detail: &[u8]) {
        let context = context as usize;
        if context < self.size() {
            self.fail_peer(context, &String::from_utf8_lossy(detail));
        }
    }

    /// Handles the close message of a context, whose end is then not a failure.
    pub(super) fn on_close(&mut self, from: usize) {
        if self.peers[from].state == State::Connected {
            self.peers[from].state = State::Finalized;
        }
    }

    /// Fails the whole run in all contexts.
    #[cold]
    pub(super) fn break_all(&mut self, error: Error) {
        if self.broken.is_some() {
            return;
        }
        let text = match &error {
            Error::Mismatch(text) => text.clone(),
            other => other.to_string(),
        };
        let len = text.len().min(2048);
        self.fail(error.clone());
        self.broken = Some(error);
        for peer in self.neighbours() {
            self.send(peer, &WireMessage::Broken, &text.as_bytes()[..len]);
        }
    }

    pub(super) fn on_broken(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.break_all(Error::Mismatch(text));
    }

    /// Sends a flush request to every context with unconfirmed messages. Returns the number of
    /// requests.
    pub(crate) fn flush(&mut self) -> usize {
        let mut requested = 0;
        for to in 0..self.size() {
            let peer = &mut self.peers[to];
            if std::mem::take(&mut peer.owes_flush) && peer.state == State::Connected {
                let token = self.add_op(Op::Flush { to });
                self.send(to, &WireMessage::Flush { token }, &[]);
                requested += 1;
            }
        }
        requested
    }

    /// Sends a close message to every context that watches this one.
    pub(crate) fn send_close(&mut self) {
        for to in 0..self.size() {
            let peer = &self.peers[to];
            if to != self.rank && peer.is_watched && !peer.has_failed() {
                self.send(to, &WireMessage::Close, &[]);
            }
        }
    }
}
