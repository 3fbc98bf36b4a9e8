//! Dissemination barrier: in round k, each context tells the context 2^k further that it has
//! entered, and that all contexts it has heard of have entered. After ceil(log2 n) rounds, all n
//! contexts have entered.
//!
//! A barrier ends on a context only when the context's own messages have been sent: afterwards, the
//! context may not poll for a long time, while others wait for these messages.

use super::Engine;
use crate::wire::WireMessage;
use crate::{Error, Result};

/// The barrier state of one context. It does no I/O; the engine sends the messages of its rounds.
#[derive(Debug)]
pub(super) struct Barrier {
    rank: usize,
    size: usize,
    /// Number of barriers that this context has entered.
    entered: u64,
    /// The current round of the last barrier; `seen.len()` when the barrier is complete.
    round: usize,
    /// For each round, the number of the last barrier whose message was received.
    seen: Vec<u64>,
    /// Number of own messages that are not sent yet.
    unsent: usize,
}

impl Barrier {
    pub(super) fn new(rank: usize, size: usize) -> Self {
        let rounds = size.next_power_of_two().trailing_zeros() as usize;
        Self {
            rank,
            size,
            entered: 0,
            round: rounds,
            seen: vec![0; rounds],
            unsent: 0,
        }
    }

    /// Whether all contexts have entered the last barrier.
    fn is_complete(&self) -> bool {
        self.round == self.seen.len()
    }

    /// Records that a message was sent, or cannot be sent.
    pub(super) fn message_sent(&mut self) {
        self.unsent = self.unsent.saturating_sub(1);
    }

    /// Enters the next barrier. The caller sends the message of the first round, unless the barrier
    /// is complete.
    fn enter(&mut self) {
        self.entered += 1;
        self.round = 0;
    }

    /// Records a received message of round `round` and barrier number `epoch`.
    fn receive(&mut self, from: usize, round: u32, epoch: u64) {
        let is_due = from == self.before(round);
        if let Some(seen) = self.seen.get_mut(round as usize).filter(|_| is_due) {
            *seen = epoch.max(*seen);
        }
    }

    /// Advances to the next round if the message of this one was received. Returns whether it did;
    /// the caller then sends the message of the new round, unless the barrier is complete.
    fn advance(&mut self) -> bool {
        let advances = !self.is_complete() && self.seen[self.round] >= self.entered;
        self.round += usize::from(advances);
        advances
    }

    /// The context that is notified in a round.
    fn after(&self, round: usize) -> usize {
        (self.rank + (1 << round)) % self.size
    }

    /// The context that notifies this one in a round.
    fn before(&self, round: u32) -> usize {
        let step = 1_usize.checked_shl(round).unwrap_or(0) % self.size;
        (self.rank + self.size - step) % self.size
    }
}

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
        let is_there = |peer: &super::Peer| matches!(peer.entered, Some((requested, count)) if requested == token && count >= entered);
        let others = (0..self.size()).filter(|&peer| peer != self.rank);
        others
            .filter(|&peer| !is_there(&self.peers[peer]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_rounds_is_the_binary_logarithm() {
        let table = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (64, 6)];
        for (size, rounds) in table {
            assert_eq!(Barrier::new(0, size).seen.len(), rounds, "{size} contexts");
        }
    }

    /// A message in flight: destination, source, round and barrier.
    type RoundMessage = (usize, usize, u32, u64);

    fn round_message(barrier: &Barrier) -> RoundMessage {
        let (round, to) = (barrier.round, barrier.after(barrier.round));
        (to, barrier.rank, round as u32, barrier.entered)
    }

    /// Lets contexts enter and messages arrive in random order. Returns the number of messages.
    fn simulate(size: usize, times: u64, mut random: u64) -> usize {
        let mut all: Vec<_> = (0..size).map(|rank| Barrier::new(rank, size)).collect();
        let (mut in_flight, mut sent) = (Vec::<RoundMessage>::new(), 0);
        while all
            .iter()
            .any(|one| one.entered < times || !one.is_complete())
        {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pick = (random >> 33) as usize;
            let context = if pick.is_multiple_of(2) && !in_flight.is_empty() {
                let (to, from, round, epoch) = in_flight.swap_remove(pick / 2 % in_flight.len());
                all[to].receive(from, round, epoch);
                to
            } else {
                let context = pick / 2 % size;
                if !all[context].is_complete() || all[context].entered == times {
                    continue;
                }
                all[context].enter();
                if !all[context].is_complete() {
                    in_flight.push(round_message(&all[context]));
                    sent += 1;
                }
                context
            };
            while all[context].advance() {
                if !all[context].is_complete() {
                    in_flight.push(round_message(&all[context]));
                    sent += 1;
                }
            }
            let one = &all[context];
            if one.is_complete() {
                let late = all.iter().find(|other| other.entered < one.entered);
                assert!(late.is_none(), "{one:?} is over before {late:?} has come");
            }
        }
        assert!(
            in_flight.is_empty(),
            "{size} contexts: {in_flight:?} are left"
        );
        sent
    }

    #[test]
    fn a_barrier_takes_one_message_per_context_and_round_and_ends_when_all_have_entered() {
        for size in [1, 2, 3, 4, 5, 8, 13, 64] {
            let rounds = Barrier::new(0, size).seen.len();
            for seed in 0..20 {
                assert_eq!(
                    simulate(size, 5, seed),
                    5 * size * rounds,
                    "{size} contexts"
                );
            }
        }
    }
}
