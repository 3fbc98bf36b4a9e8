//! `Sends`: which of a connection's sends have completed.

/// The maximum number of sends after the oldest one without a completion. A peer that receives
/// nothing, and whose responses need no credit, takes no more of the endpoint's slots.
const SENDS_MAX: u32 = 64;

/// The sends of one connection that have a completion. Completions come in any order: a long
/// payload may complete after the sends that follow it.
#[derive(Debug, Default)]
pub(crate) struct Sends {
    /// The number of sends.
    posted: u64,
    /// The number of sends before the oldest one without a completion.
    completed: u64,
    /// The bit of each slot whose send has completed after an older one that has not.
    done: u64,
}

impl Sends {
    /// Whether one more send may be posted.
    pub(crate) const fn has_room(&self) -> bool {
        self.outstanding() < SENDS_MAX as u64
    }

    /// The slot of the next send, which its completion names: below 64.
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below 64")]
    pub(crate) const fn next_slot(&self) -> u32 {
        (self.posted % SENDS_MAX as u64) as u32
    }

    /// Counts a send. Returns the number of sends, including this one.
    pub(crate) const fn post(&mut self, has_completion: bool) -> u64 {
        self.posted += has_completion as u64;
        self.posted
    }

    /// Notes the completion of the send in this slot.
    pub(crate) const fn complete(&mut self, slot: u32) {
        self.done |= 1 << (slot % SENDS_MAX);
        while self.completed < self.posted && self.done & self.oldest() != 0 {
            self.done &= !self.oldest();
            self.completed += 1;
        }
    }

    const fn oldest(&self) -> u64 {
        1 << (self.completed % SENDS_MAX as u64)
    }

    /// The number of sends after the last completed one that has none before it.
    pub(crate) const fn outstanding(&self) -> u64 {
        self.posted - self.completed
    }

    /// Whether the first `count` sends have completed.
    pub(crate) const fn has_completed(&self, count: u64) -> bool {
        self.completed >= count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_has_completed_when_all_before_it_have() {
        let mut sends = Sends::default();
        let slots: Vec<_> = std::iter::from_fn(|| {
            sends.has_room().then(|| {
                let slot = sends.next_slot();
                sends.post(true);
                slot
            })
        })
        .collect();
        assert_eq!(slots.len(), 64);
        slots[1..].iter().for_each(|&slot| sends.complete(slot));
        assert!(!sends.has_completed(1) && !sends.has_room());
        sends.complete(slots[0]);
        assert!(sends.has_completed(64) && sends.has_room());
        assert_eq!(sends.post(false), 64, "an injected frame has no completion");
        let slot = sends.next_slot();
        assert_eq!(sends.post(true), 65);
        assert!(!sends.has_completed(65));
        sends.complete(slot);
        assert!(sends.has_completed(65));
    }
}
