//! Barriers: the engine sends the messages of the rounds, and finds contexts that have not entered.

use super::parts::peer::Peer;
use super::state::Engine;
use crate::net::wire::WireMessage;
use crate::{Error, Result};

impl Engine {
    /// Enters a barrier, which each poll advances.
    ///
    /// # Errors
    /// When a barrier is under way, or a context is known to have failed.
    pub(crate) fn enter_barrier(&mut self) -> Result {
        if !self.barrier_is_complete() {
            let message = "a barrier begins before the last one has ended";
            return Err(Error::Garbled(message.to_owned()));
        }
        if let Some(error) = self.broken.clone() {
            return Err(error);
        }
        self.barrier.enter();
        if self.barrier.entered == 1 {
            self.freeze_registered();
        }
        if !self.barrier.is_complete() {
            self.send_round();
            self.advance_barrier();
        }
        if self.barrier.entered == 1 {
            self.compare_registered();
        }
        Ok(())
    }

    /// Whether the last barrier is complete.
    pub(crate) fn barrier_is_complete(&self) -> bool {
        self.barrier.is_complete() && self.barrier.unsent == 0
    }

    /// Number of barriers that this context has entered.
    pub(crate) fn entered(&self) -> u64 {
        self.barrier.entered
    }

    /// Handles a barrier message. Those of the first barrier also compare the registered names.
    #[inline]
    pub(super) fn on_barrier(&mut self, from: usize, round: u32, epoch: u64, registered: u64) {
        if epoch == 1 && !self.accepts_barrier(from, round, registered) {
            return;
        }
        self.barrier.receive(from, round, epoch);
        self.advance_barrier();
    }

    fn advance_barrier(&mut self) {
        while self.barrier.advance() {
            if !self.barrier.is_complete() {
                self.send_round();
            }
        }
    }

    fn send_round(&mut self) {
        let to = self.barrier.after(self.barrier.round);
        let message = WireMessage::Barrier {
            round: self.barrier.round as u32,
            epoch: self.barrier.entered,
            registered: self.registered.digest(),
        };
        self.barrier.unsent += 1;
        self.send_with_completion(to, &message);
    }

    /// The contexts that this one exchanges barrier messages with, each once.
    pub(super) fn neighbours(&self) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.barrier.seen.len())
            .flat_map(|round| [self.barrier.after(round), self.barrier.before(round as u32)])
            .filter(|&peer| peer != self.rank)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    // The search for contexts that have not entered.

    /// Sends a status request to every other context. Returns the token of the responses.
    pub(crate) fn query_all(&mut self) -> u64 {
        let token = self.next_op;
        self.next_op += 1;
        for peer in 0..self.size() {
            if peer != self.rank && !self.peers[peer].has_failed() {
                self.send(peer, &WireMessage::StatusRequest { token }, &[]);
            }
        }
        token
    }

    pub(super) fn on_status_request(&mut self, from: usize, token: u64) {
        let entered = self.barrier.entered;
        self.send(from, &WireMessage::StatusResponse { token, entered }, &[]);
    }

    /// The contexts that have not responded to the request with this token, or have entered fewer
    /// barriers than `entered`.
    pub(crate) fn missing(&self, token: u64, entered: u64) -> Vec<usize> {
        let is_there = |peer: &Peer| matches!(peer.entered, Some((requested, count)) if requested == token && count >= entered);
        let others = (0..self.size()).filter(|&peer| peer != self.rank);
        others
            .filter(|&peer| !is_there(&self.peers[peer]))
            .collect()
    }
}
