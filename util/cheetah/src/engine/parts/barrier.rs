//! Dissemination barrier: in round k, each context tells the context 2^k further that it has
//! entered, and that all contexts it has heard of have entered. After ceil(log2 n) rounds, all n
//! contexts have entered.
//!
//! A barrier ends on a context only when the context's own messages have been sent: afterwards, the
//! context may not poll for a long time, while others wait for these messages.

/// The barrier state of one context. It does no I/O; the engine sends the messages of its rounds.
#[derive(Debug)]
pub(crate) struct Barrier {
    rank: usize,
    size: usize,
    /// Number of barriers that this context has entered.
    pub(crate) entered: u64,
    /// The current round of the last barrier; `seen.len()` when the barrier is complete.
    pub(crate) round: usize,
    /// For each round, the number of the last barrier whose message was received.
    pub(crate) seen: Vec<u64>,
    /// Number of own messages that are not sent yet.
    pub(crate) unsent: usize,
}

impl Barrier {
    pub(crate) fn new(rank: usize, size: usize) -> Self {
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
    pub(crate) fn is_complete(&self) -> bool {
        self.round == self.seen.len()
    }

    /// Records that a message was sent, or cannot be sent.
    pub(crate) fn message_sent(&mut self) {
        self.unsent = self.unsent.saturating_sub(1);
    }

    /// Enters the next barrier. The caller sends the message of the first round, unless the barrier
    /// is complete.
    pub(crate) fn enter(&mut self) {
        self.entered += 1;
        self.round = 0;
    }

    /// Records a received message of round `round` and barrier number `epoch`.
    pub(crate) fn receive(&mut self, from: usize, round: u32, epoch: u64) {
        let is_due = from == self.before(round);
        if let Some(seen) = self.seen.get_mut(round as usize).filter(|_| is_due) {
            *seen = epoch.max(*seen);
        }
    }

    /// Advances to the next round if the message of this one was received. Returns whether it did;
    /// the caller then sends the message of the new round, unless the barrier is complete.
    pub(crate) fn advance(&mut self) -> bool {
        let advances = !self.is_complete() && self.seen[self.round] >= self.entered;
        self.round += usize::from(advances);
        advances
    }

    /// The context that is notified in a round.
    pub(crate) fn after(&self, round: usize) -> usize {
        (self.rank + (1 << round)) % self.size
    }

    /// The context that notifies this one in a round.
    pub(crate) fn before(&self, round: u32) -> usize {
        let step = 1_usize.checked_shl(round).unwrap_or(0) % self.size;
        (self.rank + self.size - step) % self.size
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
