//! The response queue: responses from the consumer of commands to their producer (`smr_resp`).
//!
//! A response is two words: word 1 is its content, word 0 the stamp of its position, stored last.
//! There is no flow control: a producer of commands never has more of them outstanding than its
//! peer has room for responses.

use crate::smr::sync::{Ordering, Words, order};

/// A response to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resp {
    /// The command's `msg_id`; the status may give it another meaning.
    pub msg_id: u32,
    /// The result; the commands' protocol defines the values.
    pub status: u32,
}

/// The producer.
#[derive(Debug)]
pub struct RespSender {
    words: Words,
    mask: u64,
    head: u64,
}

impl RespSender {
    pub(crate) fn new(words: Words) -> Self {
        Self {
            mask: words.len() as u64 / 2 - 1,
            words,
            head: 0,
        }
    }

    /// Pushes a response.
    pub fn push(&mut self, resp: Resp) {
        let first = (self.head & self.mask) as usize * 2;
        let content = u64::from(resp.status) << 32 | u64::from(resp.msg_id);
        self.words.word(first + 1).store(content, Ordering::Relaxed);
        self.words.word(first).store(self.head + 1, order::commit());
        self.head += 1;
    }
}

/// The consumer.
#[derive(Debug)]
pub struct RespReceiver {
    words: Words,
    mask: u64,
    tail: u64,
}

impl RespReceiver {
    pub(crate) fn new(words: Words) -> Self {
        Self {
            mask: words.len() as u64 / 2 - 1,
            words,
            tail: 0,
        }
    }

    /// Pops the next response.
    #[inline]
    pub fn pop(&mut self) -> Option<Resp> {
        let first = (self.tail & self.mask) as usize * 2;
        if self.words.word(first).load(order::observe()) != self.tail + 1 {
            return None;
        }
        let content = self.words.word(first + 1).load(Ordering::Relaxed);
        self.tail += 1;
        Some(Resp {
            msg_id: content as u32,
            status: (content >> 32) as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smr::{Memory, Writers};

    const COUNT: u32 = 4;

    fn queue() -> (RespSender, RespReceiver) {
        let memory = Memory::create(4096, Writers::Owner).unwrap();
        let words = Words::new(memory.mapping().clone(), 0, COUNT as usize * 2);
        (RespSender::new(words.clone()), RespReceiver::new(words))
    }

    fn resp(number: u32) -> Resp {
        Resp {
            msg_id: number,
            status: !number,
        }
    }

    #[test]
    fn responses_keep_their_order_over_many_laps() {
        let (mut tx, mut rx) = queue();
        for first in (0..10 * COUNT).step_by(3) {
            (first..first + 3).for_each(|number| tx.push(resp(number)));
            for number in first..first + 3 {
                assert_eq!(rx.pop(), Some(resp(number)));
            }
            assert_eq!(rx.pop(), None);
        }
    }

    #[test]
    fn a_full_queue_loses_nothing() {
        let (mut tx, mut rx) = queue();
        (0..COUNT).for_each(|number| tx.push(resp(number)));
        assert!((0..COUNT).all(|number| rx.pop() == Some(resp(number))));
        assert_eq!(rx.pop(), None);
    }

    #[test]
    fn a_response_of_a_later_lap_is_not_taken_for_the_expected_one() {
        let (mut tx, mut rx) = queue();
        (0..=COUNT).for_each(|number| tx.push(resp(number)));
        assert_eq!(rx.pop(), None, "its stamp is of a later lap");
    }
}
