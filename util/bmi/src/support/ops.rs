//! Operations: allocation, and keys that find them again.
//!
//! A key names a place and a generation of it. A place is used again at once, with the next
//! generation, so a key does not come back for a billion operations at one place; and whoever asks
//! with a key that is over, or was never given out, gets nothing.

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
    /// Bytes of the buffer.
    pub size: u64,
    /// The application's word, which comes back with the completion.
    pub user: u64,
    /// Where its completion goes; none, if that context was closed.
    pub(crate) context: Option<u8>,
    /// How it ended, with the bytes that were moved.
    pub(crate) outcome: Option<Result<u64>>,
    /// Memory that lives as long as it does.
    pub(crate) kept: Option<Box<dyn Keep>>,
}

impl Op {
    /// An operation with nothing but its peer, tag and size.
    pub const fn new(addr: Addr, tag: i32, size: u64) -> Self {
        Self {
            addr,
            tag,
            size,
            user: 0,
            context: None,
            outcome: None,
            kept: None,
        }
    }
}

impl Op {
    /// It is over.
    #[inline]
    pub(crate) fn end(&mut self, outcome: Result<u64>) {
        self.outcome = Some(outcome);
        if let Some(kept) = &mut self.kept
            && let Ok(len) = outcome
        {
            kept.arrived(len as usize);
        }
    }
}

/// What an operation keeps until it is over.
pub(crate) trait Keep: fmt::Debug + Send {
    /// So many bytes have arrived: puts them where the application wants them.
    fn arrived(&mut self, len: usize);

    /// The application's own buffers, if it has lent them.
    fn into_buffers(self: Box<Self>) -> Vec<crate::Buffer> {
        Vec::new()
    }
}

/// The operations of one method.
#[derive(Debug, Default)]
pub struct Ops {
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    generation: u32,
    /// The queue that it is in, and its neighbours there.
    pub(super) link: Link,
    op: Option<Op>,
}

/// Where an operation stands in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// The queue's number; 0 for none.
    pub(super) queue: u32,
    pub(super) before: Option<u32>,
    pub(super) behind: Option<u32>,
}

impl Ops {
    /// Allocates an operation (the seed's `alloc_method_op` and `id_gen_fast_register`).
    ///
    /// # Errors
    /// [`Code::ENOBUFS`] when there are half a billion already.
    #[inline(always)]
    pub fn alloc(&mut self, op: Op) -> Result<OpKey> {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            place.op = Some(op);
            return Ok(OpKey::new(index, place.generation));
        }
        self.alloc_behind(op)
    }

    #[cold]
    fn alloc_behind(&mut self, op: Op) -> Result<OpKey> {
        let index = self.places.len() as u32;
        if index >= OPS {
            return Err(Code::ENOBUFS);
        }
        self.places.push(Place {
            generation: 1,
            link: Link::default(),
            op: Some(op),
        });
        Ok(OpKey::new(index, 1))
    }

    /// Takes an operation out (`dealloc_method_op`). One that is in a queue stays.
    #[inline(always)]
    pub fn dealloc(&mut self, key: OpKey) -> Option<Op> {
        let place = self.places.get_mut(key.place() as usize)?;
        if place.generation != key.generation() || place.link.queue != 0 {
            return None;
        }
        let op = place.op.take()?;
        place.generation = match place.generation + 1 {
            GENERATIONS => 1,
            next => next,
        };
        self.free.push(key.place());
        Some(op)
    }

    /// Finds an operation (`id_gen_fast_lookup`).
    #[inline]
    pub fn get(&self, key: OpKey) -> Option<&Op> {
        let place = self.places.get(key.place() as usize)?;
        match place.generation == key.generation() {
            true => place.op.as_ref(),
            false => None,
        }
    }

    /// As [`Self::get`], to change it.
    #[inline]
    pub fn get_mut(&mut self, key: OpKey) -> Option<&mut Op> {
        let place = self.places.get_mut(key.place() as usize)?;
        match place.generation == key.generation() {
            true => place.op.as_mut(),
            false => None,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every operation, with its key.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (OpKey, &mut Op)> {
        self.places
            .iter_mut()
            .enumerate()
            .filter_map(|(index, place)| {
                let key = OpKey::new(index as u32, place.generation);
                Some((key, place.op.as_mut()?))
            })
    }

    /// The key of whatever is at a place.
    pub(super) fn key_at(&self, index: u32) -> OpKey {
        OpKey::new(index, self.places[index as usize].generation)
    }

    #[inline]
    pub(super) fn link(&self, index: u32) -> Link {
        self.places[index as usize].link
    }

    #[inline]
    pub(super) fn link_mut(&mut self, index: u32) -> &mut Link {
        &mut self.places[index as usize].link
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
    fn a_key_finds_its_operation_until_that_is_over() {
        let mut ops = Ops::default();
        let first = ops.alloc(op(1)).unwrap();
        let second = ops.alloc(op(2)).unwrap();
        assert_eq!(ops.get(first).unwrap().tag, 1);
        assert_eq!(ops.dealloc(first).unwrap().tag, 1);
        assert!(ops.get(first).is_none() && ops.dealloc(first).is_none());
        let third = ops.alloc(op(3)).unwrap();
        assert_eq!(third.place(), first.place());
        assert!(ops.get_mut(first).is_none());
        assert_eq!(ops.get(third).unwrap().tag, 3);
        assert_eq!(ops.get(second).unwrap().tag, 2);
        assert_eq!(ops.len(), 2);
        for never in [OpKey(0), OpKey(u64::MAX), OpKey::new(77, 1)] {
            assert!(ops.get(never).is_none(), "{never:?}");
        }
    }

    #[test]
    fn keys_do_not_come_back() {
        let mut ops = Ops::default();
        let mut seen = HashSet::new();
        for _ in 0..1_000_000 {
            let key = ops.alloc(op(0)).unwrap();
            assert!(seen.insert(key));
            ops.dealloc(key).unwrap();
        }
    }
}
