//! Barriers: in round k each context tells the one 2^k further that it, and all whom it has heard
//! from, have entered. After as many rounds as `n` has binary digits, all have.
//!
//! A barrier ends when its own messages have left, too: a context that goes on to something else may
//! not poll for long, and others wait for them.

use super::Engine;
use crate::wire::Said;
use crate::{Error, Result};

/// Where one context is. It does no I/O: whoever has it tells the others of its rounds.
#[derive(Debug)]
pub(super) struct Barrier {
    me: usize,
    size: usize,
    /// Barriers that this context has entered.
    entered: u64,
    /// The round of the last one that is waited for; `seen.len()` when it is over.
    round: usize,
    /// The last barrier of which the message of each round has come.
    seen: Vec<u64>,
    /// Messages of this context that have not left.
    staying: usize,
}

impl Barrier {
    pub(super) fn new(me: usize, size: usize) -> Self {
        let rounds = size.next_power_of_two().trailing_zeros() as usize;
        Self {
            me,
            size,
            entered: 0,
            round: rounds,
            seen: vec![0; rounds],
            staying: 0,
        }
    }

    /// Whether all have entered.
    fn is_over(&self) -> bool {
        self.round == self.seen.len()
    }

    /// A message has left, or never will.
    pub(super) fn left(&mut self) {
        self.staying = self.staying.saturating_sub(1);
    }

    /// Enters the next one. The first round has to be told of, unless it is over already.
    fn enter(&mut self) {
        self.entered += 1;
        self.round = 0;
    }

    /// The message of a round has come.
    fn hear(&mut self, from: usize, round: u32, epoch: u64) {
        let is_due = from == self.before(round);
        if let Some(seen) = self.seen.get_mut(round as usize).filter(|_| is_due) {
            *seen = epoch.max(*seen);
        }
    }

    /// Goes on to the next round if the message of this one has come; says whether it did. It has to
    /// be told of, unless it is over.
    fn advance(&mut self) -> bool {
        let goes_on = !self.is_over() && self.seen[self.round] >= self.entered;
        self.round += usize::from(goes_on);
        goes_on
    }

    /// Who is told of a round.
    fn after(&self, round: usize) -> usize {
        (self.me + (1 << round)) % self.size
    }

    /// Who tells of a round.
    fn before(&self, round: u32) -> usize {
        let step = 1_usize.checked_shl(round).unwrap_or(0) % self.size;
        (self.me + self.size - step) % self.size
    }
}

impl Engine {
    /// Enters a barrier, and goes on to the end of it with each poll.
    ///
    /// # Errors
    /// When one is under way, or it is known that not all will come.
    pub(crate) fn enter_barrier(&mut self) -> Result {
        if !self.barrier_is_over() {
            let what = "a barrier begins before the last one has ended";
            return Err(Error::Garbled(what.to_owned()));
        }
        if let Some(why) = self.broken.clone() {
            return Err(why);
        }
        self.barrier.enter();
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
        self.barrier.is_over() && self.barrier.staying == 0
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
        self.barrier.hear(from, round, epoch);
        self.advance_barrier();
    }

    fn advance_barrier(&mut self) {
        while self.barrier.advance() {
            if !self.barrier.is_over() {
                self.tell_round();
            }
        }
    }

    fn tell_round(&mut self) {
        let to = self.barrier.after(self.barrier.round);
        let said = Said::Barrier {
            round: self.barrier.round as u32,
            epoch: self.barrier.entered,
            registered: self.registered.digest(),
        };
        self.barrier.staying += 1;
        self.send_off(to, &said);
    }

    /// The contexts that this one tells or hears of barriers, each once.
    pub(super) fn neighbours(&self) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.barrier.seen.len())
            .flat_map(|round| [self.barrier.after(round), self.barrier.before(round as u32)])
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
            assert_eq!(Barrier::new(0, size).seen.len(), rounds, "{size} contexts");
        }
    }

    /// A message that is on its way: to whom, from whom, the round and the barrier.
    type Letter = (usize, usize, u32, u64);

    fn told(barrier: &Barrier) -> Letter {
        let (round, to) = (barrier.round, barrier.after(barrier.round));
        (to, barrier.me, round as u32, barrier.entered)
    }

    /// Has contexts enter, and messages arrive, in any order; says how many messages there were.
    fn meet(size: usize, times: u64, mut random: u64) -> usize {
        let mut all: Vec<_> = (0..size).map(|me| Barrier::new(me, size)).collect();
        let (mut post, mut sent) = (Vec::<Letter>::new(), 0);
        while all.iter().any(|one| one.entered < times || !one.is_over()) {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pick = (random >> 33) as usize;
            let who = if pick.is_multiple_of(2) && !post.is_empty() {
                let (to, from, round, epoch) = post.swap_remove(pick / 2 % post.len());
                all[to].hear(from, round, epoch);
                to
            } else {
                let who = pick / 2 % size;
                if !all[who].is_over() || all[who].entered == times {
                    continue;
                }
                all[who].enter();
                if !all[who].is_over() {
                    post.push(told(&all[who]));
                    sent += 1;
                }
                who
            };
            while all[who].advance() {
                if !all[who].is_over() {
                    post.push(told(&all[who]));
                    sent += 1;
                }
            }
            let one = &all[who];
            if one.is_over() {
                let late = all.iter().find(|other| other.entered < one.entered);
                assert!(late.is_none(), "{one:?} is over before {late:?} has come");
            }
        }
        assert!(post.is_empty(), "{size} contexts: {post:?} are left");
        sent
    }

    #[test]
    fn a_barrier_of_n_takes_a_message_of_each_in_each_round_and_ends_when_all_have_come() {
        for size in [1, 2, 3, 4, 5, 8, 13, 64] {
            let rounds = Barrier::new(0, size).seen.len();
            for seed in 0..20 {
                assert_eq!(meet(size, 5, seed), 5 * size * rounds, "{size} contexts");
            }
        }
    }
}
