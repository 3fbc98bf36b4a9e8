//! Barriers: in round k each context tells the one 2^k further that it, and all whom it has heard
//! from, have entered. After as many rounds as `n` has binary digits, all have.

use super::Engine;
use crate::wire::Said;
use crate::{Error, Result};

/// Where this context is.
#[derive(Debug)]
pub(super) struct Barrier {
    /// Barriers that this context has entered.
    entered: u64,
    /// The round of the last one that is waited for; `seen.len()` when it is over.
    round: usize,
    /// The last barrier of which the message of each round has come.
    seen: Vec<u64>,
}

impl Barrier {
    pub(super) fn among(size: usize) -> Self {
        let rounds = size.next_power_of_two().trailing_zeros() as usize;
        Self {
            entered: 0,
            round: rounds,
            seen: vec![0; rounds],
        }
    }

    fn is_over(&self) -> bool {
        self.round == self.seen.len()
    }
}

impl Engine {
    /// Enters a barrier, and goes on to the end of it with each poll.
    ///
    /// # Errors
    /// When one is under way, or it is known that not all will come.
    pub(crate) fn enter_barrier(&mut self) -> Result {
        if !self.barrier.is_over() {
            let what = "a barrier begins before the last one has ended";
            return Err(Error::Garbled(what.to_owned()));
        }
        if let Some(why) = self.broken.clone() {
            return Err(why);
        }
        self.barrier.entered += 1;
        self.barrier.round = 0;
        if self.barrier.entered == 1 {
            self.freeze_registered();
        }
        if !self.barrier.is_over() {
            self.tell_round();
            self.advance_barrier();
        }
        if self.barrier.entered == 1 {
            self.compare_registered();
        }
        Ok(())
    }

    /// Whether the barrier that was entered last is over.
    pub(crate) fn barrier_is_over(&self) -> bool {
        self.barrier.is_over()
    }

    /// Barriers that this context has entered.
    pub(crate) fn entered(&self) -> u64 {
        self.barrier.entered
    }

    #[inline]
    pub(super) fn hear_barrier(&mut self, from: usize, round: u32, epoch: u64, registered: u64) {
        if epoch == 1 && !self.is_same(from, round, registered) {
            return;
        }
        let is_due = from == self.before(round);
        if let Some(seen) = self.barrier.seen.get_mut(round as usize).filter(|_| is_due) {
            *seen = epoch.max(*seen);
        }
        self.advance_barrier();
    }

    fn advance_barrier(&mut self) {
        while !self.barrier.is_over()
            && self.barrier.seen[self.barrier.round] >= self.barrier.entered
        {
            self.barrier.round += 1;
            if !self.barrier.is_over() {
                self.tell_round();
            }
        }
    }

    fn tell_round(&mut self) {
        let to = self.after(self.barrier.round);
        let said = Said::Barrier {
            round: self.barrier.round as u32,
            epoch: self.barrier.entered,
            registered: self.registered.digest(),
        };
        self.send(to, &said, &[]);
    }

    fn after(&self, round: usize) -> usize {
        (self.me + (1 << round)) % self.size()
    }

    fn before(&self, round: u32) -> usize {
        let step = 1_usize.checked_shl(round).unwrap_or(0) % self.size();
        (self.me + self.size() - step) % self.size()
    }

    /// The contexts that this one tells or hears of barriers, each once.
    pub(super) fn neighbours(&self) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.barrier.seen.len())
            .flat_map(|round| [self.after(round), self.before(round as u32)])
            .filter(|&peer| peer != self.me)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    // Who is missing?

    /// Asks every other context how far it is.
    pub(crate) fn ask_all(&mut self) -> u64 {
        let token = self.next_op;
        self.next_op += 1;
        for peer in 0..self.size() {
            if peer != self.me && !self.peers[peer].is_lost() {
                self.send(peer, &Said::Ask { token }, &[]);
            }
        }
        token
    }

    pub(super) fn hear_ask(&mut self, from: usize, token: u64) {
        let entered = self.barrier.entered;
        self.send(from, &Said::Answer { token, entered }, &[]);
    }

    /// The contexts that have not answered the question, or have entered fewer barriers than this.
    pub(crate) fn missing(&self, token: u64, entered: u64) -> Vec<usize> {
        let is_there = |peer: &super::Peer| matches!(peer.entered, Some((asked, count)) if asked == token && count >= entered);
        let others = (0..self.size()).filter(|&peer| peer != self.me);
        others
            .filter(|&peer| !is_there(&self.peers[peer]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_rounds_as_doublings() {
        let table = [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (64, 6)];
        for (size, rounds) in table {
            assert_eq!(Barrier::among(size).seen.len(), rounds, "{size} contexts");
        }
    }
}
