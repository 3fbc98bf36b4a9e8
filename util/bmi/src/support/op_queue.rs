//! Operation queues: first in, first out, with removal from the middle.
//!
//! The links are in the operations, so nothing is allocated and a removal takes constant time. An
//! operation is in one queue at a time.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ops::{Link, Op, Ops};
use crate::ids::OpKey;

/// A queue of operations of one [`Ops`]. Dropping the queue does not free its operations.
#[derive(Debug)]
pub struct OpQueue {
    number: u32,
    head: Option<u32>,
    tail: Option<u32>,
}

/// Search criteria of [`OpQueue::search`]; `None` matches everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchKey {
    /// The peer.
    pub addr: Option<crate::Addr>,
    /// The tag.
    pub tag: Option<i32>,
    /// The operation itself.
    pub op: Option<OpKey>,
}

impl SearchKey {
    fn matches(&self, key: OpKey, op: &Op) -> bool {
        self.addr.is_none_or(|addr| addr == op.addr)
            && self.tag.is_none_or(|tag| tag == op.tag)
            && self.op.is_none_or(|op_key| op_key == key)
    }
}

impl OpQueue {
    /// Makes an empty queue (`op_queue_new`).
    #[expect(clippy::new_without_default, reason = "every queue has its own number")]
    pub fn new() -> Self {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed).max(1),
            head: None,
            tail: None,
        }
    }

    /// Destroys the queue and every operation in it (`op_queue_cleanup`).
    pub fn cleanup(mut self, ops: &mut Ops) {
        while let Some(key) = self.pop(ops) {
            drop(ops.dealloc(key));
        }
    }

    /// Adds an operation at the tail (`op_queue_add`). Returns `false` for an unknown operation and
    /// for one that is in a queue.
    #[inline]
    pub fn add(&mut self, ops: &mut Ops, key: OpKey) -> bool {
        let index = key.slot();
        if ops.get(key).is_none() || ops.link(index).queue != 0 {
            return false;
        }
        *ops.link_mut(index) = Link {
            queue: self.number,
            prev: self.tail,
            next: None,
        };
        match self.tail.replace(index) {
            Some(tail) => ops.link_mut(tail).next = Some(index),
            None => self.head = Some(index),
        }
        true
    }

    /// Removes an operation from the queue (`op_queue_remove`). Returns whether the operation was
    /// in the queue.
    #[inline]
    pub fn remove(&mut self, ops: &mut Ops, key: OpKey) -> bool {
        if ops.get(key).is_none() || ops.link(key.slot()).queue != self.number {
            return false;
        }
        let link = std::mem::take(ops.link_mut(key.slot()));
        match link.prev {
            Some(prev) => ops.link_mut(prev).next = link.next,
            None => self.head = link.next,
        }
        match link.next {
            Some(next) => ops.link_mut(next).prev = link.prev,
            None => self.tail = link.prev,
        }
        true
    }

    /// Removes the operation at the head.
    #[inline]
    pub fn pop(&mut self, ops: &mut Ops) -> Option<OpKey> {
        let key = ops.key_at(self.head?);
        self.remove(ops, key);
        Some(key)
    }

    /// The first operation that matches, from the head on (`op_queue_search`).
    pub fn search(&self, ops: &Ops, criteria: &SearchKey) -> Option<OpKey> {
        self.iter(ops)
            .find(|(key, op)| criteria.matches(*key, op))
            .map(|(key, _)| key)
    }

    /// Returns whether the queue is empty (`op_queue_empty`).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Number of operations in the queue (`op_queue_count`). Takes linear time: for debugging.
    pub fn count(&self, ops: &Ops) -> usize {
        self.iter(ops).count()
    }

    /// Logs every operation in the queue (`op_queue_dump`), for debugging.
    pub fn dump(&self, ops: &Ops) {
        for (key, op) in self.iter(ops) {
            super::gossip::debug(
                super::gossip::Mask::OP_LIST,
                format_args!("op {key:?}: {op:?}"),
            );
        }
    }

    fn iter<'a>(&self, ops: &'a Ops) -> impl Iterator<Item = (OpKey, &'a Op)> {
        let mut next = self.head;
        std::iter::from_fn(move || {
            let index = next?;
            next = ops.link(index).next;
            let key = ops.key_at(index);
            Some((key, ops.get(key)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addr;

    fn queue_with_tags(tags: &[i32]) -> (Ops, OpQueue, Vec<OpKey>) {
        let (mut ops, mut queue) = (Ops::default(), OpQueue::new());
        let keys = tags.iter().map(|&tag| {
            let key = ops.alloc(Op::new(Addr(tag as i64 % 2), tag, 0)).unwrap();
            assert!(queue.add(&mut ops, key));
            key
        });
        let keys = keys.collect();
        (ops, queue, keys)
    }

    #[test]
    fn queues_are_first_in_first_out_and_allow_removal_anywhere() {
        let (mut ops, mut queue, keys) = queue_with_tags(&[1, 2, 3, 4, 5]);
        assert_eq!(queue.count(&ops), 5);
        for index in [2, 0, 4] {
            assert!(queue.remove(&mut ops, keys[index]));
            assert!(!queue.remove(&mut ops, keys[index]));
        }
        assert_eq!(queue.pop(&mut ops), Some(keys[1]));
        assert!(queue.add(&mut ops, keys[1]));
        assert_eq!(queue.pop(&mut ops), Some(keys[3]));
        assert_eq!(queue.pop(&mut ops), Some(keys[1]));
        assert!(queue.is_empty() && queue.pop(&mut ops).is_none());
        assert_eq!(ops.len(), 5);
    }

    #[test]
    fn a_search_begins_at_the_head() {
        let (ops, queue, keys) = queue_with_tags(&[7, 8, 7, 9]);
        let criteria_for_tag = |criteria_for_tag| SearchKey {
            tag: Some(criteria_for_tag),
            ..SearchKey::default()
        };
        assert_eq!(queue.search(&ops, &criteria_for_tag(7)), Some(keys[0]));
        assert_eq!(queue.search(&ops, &criteria_for_tag(6)), None);
        let mut criteria = criteria_for_tag(7);
        criteria.op = Some(keys[2]);
        assert_eq!(queue.search(&ops, &criteria), Some(keys[2]));
        criteria.addr = Some(Addr(0));
        assert_eq!(queue.search(&ops, &criteria), None);
        queue.dump(&ops);
    }

    #[test]
    fn an_operation_is_in_one_queue_at_a_time() {
        let (mut ops, mut queue, keys) = queue_with_tags(&[1, 2]);
        let mut other = OpQueue::new();
        assert!(!other.add(&mut ops, keys[0]));
        assert!(!other.remove(&mut ops, keys[0]));
        assert!(ops.dealloc(keys[0]).is_none());
        assert!(queue.remove(&mut ops, keys[0]) && other.add(&mut ops, keys[0]));
        queue.cleanup(&mut ops);
        other.cleanup(&mut ops);
        assert!(ops.is_empty());
    }
}
