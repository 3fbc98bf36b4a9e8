//! The operation table: allocation, and keys that find operations.
//!
//! A key consists of the index of a slot and the slot's generation. A freed slot is reused at once
//! with the next generation, so the same key is returned again only after a billion operations in
//! its slot. A lookup with a stale or invalid key returns `None`.

use std::fmt;

use crate::ids::{GENERATIONS, OPS, OpKey};
use crate::{Addr, Code, Result};

/// One operation that was posted and not yet collected.
#[derive(Debug)]
pub struct Op {
    /// The peer.
    pub addr: Addr,
    /// The tag.
    pub tag: i32,
    /// The length of the buffer in bytes.
    pub size: u64,
    /// The application's value (`user_ptr` in C), which the completion returns.
    pub user: u64,
    /// The context in which the operation completes; `None` if that context was closed.
    pub(crate) context: Option<u8>,
    /// The number of transferred bytes or the error, once the operation is complete.
    pub(crate) outcome: Option<Result<u64>>,
    /// Memory that the operation retains until it is freed.
    pub(crate) retained: Option<Box<dyn Retained>>,
}

impl Op {
    /// An operation with a peer, a tag and a size; all other fields are empty.
    pub const fn new(addr: Addr, tag: i32, size: u64) -> Self {
        Self {
            addr,
            tag,
            size,
            user: 0,
            context: None,
            outcome: None,
            retained: None,
        }
    }
}

impl Op {
    /// Records the outcome. After a success, tells the retained memory how many bytes were
    /// received.
    #[inline]
    pub(crate) fn end(&mut self, outcome: Result<u64>) {
        self.outcome = Some(outcome);
        if let Some(retained) = &mut self.retained
            && let Ok(len) = outcome
        {
            retained.received(len as usize);
        }
    }
}

/// Memory that an operation retains until it is freed.
pub(crate) trait Retained: fmt::Debug + Send {
    /// Called when `len` bytes were received: copies them to the application's memory.
    fn received(&mut self, len: usize);

    /// Returns the application's own buffers, if the operation owns them.
    fn into_buffers(self: Box<Self>) -> Vec<crate::Buffer> {
        Vec::new()
    }
}

/// The operations of one method.
#[derive(Debug, Default)]
pub struct Ops {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    /// The queue that the operation is in, and its neighbours in the queue.
    pub(super) link: Link,
    op: Option<Op>,
}

/// Links of an operation in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// The queue's number; 0 for none.
    pub(super) queue: u32,
    pub(super) prev: Option<u32>,
    pub(super) next: Option<u32>,
}

impl Ops {
    /// Allocates an operation (`alloc_method_op` and `id_gen_fast_register` in BMI's C sources).
    ///
    /// # Errors
    /// [`Code::ENOBUFS`] when half a billion (`OPS`) operations exist.
    #[inline(always)]
    pub fn alloc(&mut self, op: Op) -> Result<OpKey> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.op = Some(op);
            return Ok(OpKey::new(index, slot.generation));
        }
        self.alloc_new_slot(op)
    }

    #[cold]
    fn alloc_new_slot(&mut self, op: Op) -> Result<OpKey> {
        let index = self.slots.len() as u32;
        if index >= OPS {
            return Err(Code::ENOBUFS);
        }
        self.slots.push(Slot {
            generation: 1,
            link: Link::default(),
            op: Some(op),
        });
        Ok(OpKey::new(index, 1))
    }

    /// Frees an operation (`dealloc_method_op`) and returns it. Returns `None`, and frees nothing,
    /// if the key is stale or the operation is in a queue.
    #[inline(always)]
    pub fn dealloc(&mut self, key: OpKey) -> Option<Op> {
        let slot = self.slots.get_mut(key.slot() as usize)?;
        if slot.generation != key.generation() || slot.link.queue != 0 {
            return None;
        }
        let op = slot.op.take()?;
        slot.generation = match slot.generation + 1 {
            GENERATIONS => 1,
            next => next,
        };
        self.free.push(key.slot());
        Some(op)
    }

    /// Finds an operation (`id_gen_fast_lookup`).
    #[inline]
    pub fn get(&self, key: OpKey) -> Option<&Op> {
        let slot = self.slots.get(key.slot() as usize)?;
        if slot.generation == key.generation() {
            slot.op.as_ref()
        } else {
            None
        }
    }

    /// As [`Self::get`], mutable.
    #[inline]
    pub fn get_mut(&mut self, key: OpKey) -> Option<&mut Op> {
        let slot = self.slots.get_mut(key.slot() as usize)?;
        if slot.generation == key.generation() {
            slot.op.as_mut()
        } else {
            None
        }
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every operation, with its key.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpKey, &mut Op)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(|(index, slot)| {
                let key = OpKey::new(index as u32, slot.generation);
                Some((key, slot.op.as_mut()?))
            })
    }

    /// The key of the operation in a slot.
    pub(super) fn key_at(&self, index: u32) -> OpKey {
        OpKey::new(index, self.slots[index as usize].generation)
    }

    #[inline]
    pub(super) fn link(&self, index: u32) -> Link {
        self.slots[index as usize].link
    }

    #[inline]
    pub(super) fn link_mut(&mut self, index: u32) -> &mut Link {
        &mut self.slots[index as usize].link
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn op(tag: i32) -> Op {
        Op::new(Addr::NONE, tag, 0)
    }

    #[test]
    fn a_key_finds_its_operation_until_it_is_freed() {
        let mut ops = Ops::default();
        let first = ops.alloc(op(1)).unwrap();
        let second = ops.alloc(op(2)).unwrap();
        assert_eq!(ops.get(first).unwrap().tag, 1);
        assert_eq!(ops.dealloc(first).unwrap().tag, 1);
        assert!(ops.get(first).is_none() && ops.dealloc(first).is_none());
        let third = ops.alloc(op(3)).unwrap();
        assert_eq!(third.slot(), first.slot());
        assert!(ops.get_mut(first).is_none());
        assert_eq!(ops.get(third).unwrap().tag, 3);
        assert_eq!(ops.get(second).unwrap().tag, 2);
        assert_eq!(ops.len(), 2);
        for invalid in [OpKey(0), OpKey(u64::MAX), OpKey::new(77, 1)] {
            assert!(ops.get(invalid).is_none(), "{invalid:?}");
        }
    }

    #[test]
    fn keys_are_not_reused() {
        let mut ops = Ops::default();
        let mut seen = HashSet::new();
        for _ in 0..1_000_000 {
            let key = ops.alloc(op(0)).unwrap();
            assert!(seen.insert(key));
            ops.dealloc(key).unwrap();
        }
    }
}
