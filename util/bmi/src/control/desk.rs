//! The desk of a method: where it tells the control layer of what is done and of what has arrived,
//! and what the control layer keeps for it.

use std::collections::VecDeque;

use crate::ids::{CONTEXTS, MethodIndex, OpId, OpKey};
use crate::method::MethodAddr;
use crate::support::gossip;
use crate::support::heap::HeapBuf;
use crate::support::op_queue::OpQueue;
use crate::support::ops::{Keep, Op, Ops};
use crate::support::references::References;
use crate::{Addr, Code, Completion, Result};

/// Bytes of unexpected messages that wait for the application before no more are taken, and bytes
/// that each message counts for besides its own.
const ROOM: usize = 4 << 20;
const ENTRY: usize = 128;

/// The key of no operation.
const NO_KEY: OpKey = OpKey(0);

/// What the control layer keeps for one method.
#[derive(Debug)]
pub struct Desk {
    method: MethodIndex,
    /// The operations that are posted or not collected.
    pub ops: Ops,
    /// Those that are done, by context.
    done: [OpQueue; CONTEXTS],
    pub(crate) references: References,
    /// Messages that nobody has asked for, by class.
    unexpected: Vec<(u8, VecDeque<Unexpected>)>,
    /// How many there are.
    arrived: usize,
    /// What they take.
    taken: usize,
    /// The operation that whoever holds the desk is testing; no key otherwise.
    wanted: OpKey,
    /// How it ended, when it is wanted no more.
    caught: Result<u64>,
    /// Something was told since somebody last looked.
    pub(crate) has_news: bool,
}

/// A message that nobody has asked for.
#[derive(Debug)]
pub struct Unexpected {
    /// Who sent it.
    pub addr: Addr,
    /// The sender's tag.
    pub tag: i32,
    /// The message.
    pub buffer: HeapBuf,
}

impl Desk {
    pub(crate) fn new(method: MethodIndex) -> Self {
        Self {
            method,
            ops: Ops::default(),
            done: std::array::from_fn(|_| OpQueue::new()),
            references: References::new(method),
            unexpected: Vec::new(),
            arrived: 0,
            taken: 0,
            wanted: NO_KEY,
            caught: Ok(0),
            has_news: false,
        }
    }

    /// An operation is over: so many bytes were moved, or it failed. Its memory is the
    /// application's again.
    #[inline]
    pub fn complete(&mut self, key: OpKey, outcome: Result<u64>) {
        if key == self.wanted {
            // It is collected before anybody else can ask.
            self.wanted = NO_KEY;
            self.caught = outcome;
            return;
        }
        let Some(op) = self.ops.get_mut(key) else {
            return;
        };
        if op.outcome.is_some() {
            return;
        }
        op.end(outcome);
        match op.context {
            Some(context) => {
                self.done[context as usize].add(&mut self.ops, key);
                self.has_news = true;
            }
            // Nobody will ask for it.
            None => drop(self.release(key)),
        }
    }

    /// A message has arrived that nobody has asked for. When there is no memory it is lost, and
    /// that is said.
    pub fn arrive(&mut self, from: MethodAddr, tag: i32, class: u8, bytes: &[u8]) {
        let (Ok(addr), Some(buffer)) = (self.references.register(from), HeapBuf::copy_of(bytes))
        else {
            let len = bytes.len();
            return gossip::err(format_args!(
                "no memory for an unexpected message of {len} bytes: it is lost"
            ));
        };
        if let Some(reference) = self.references.get_mut(addr) {
            reference.pending += 1;
        }
        self.arrived += 1;
        self.taken += bytes.len() + ENTRY;
        self.has_news = true;
        let message = Unexpected { addr, tag, buffer };
        match self
            .unexpected
            .iter_mut()
            .find(|(other, _)| *other == class)
        {
            Some((_, queue)) => queue.push_back(message),
            None => self.unexpected.push((class, [message].into())),
        }
    }

    /// Whether more unexpected messages should be taken now.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.taken < ROOM
    }

    /// Registers a peer that came by itself (the seed's `bmi_method_addr_reg_callback`).
    ///
    /// # Errors
    /// [`Code::ENOBUFS`] when there are too many.
    pub fn register(&mut self, addr: MethodAddr) -> Result<Addr> {
        self.references.register(addr)
    }

    /// A peer is gone. If it came by itself, it can be forgotten when nobody holds it; who is
    /// forgotten now comes back.
    pub fn set_gone(&mut self, addr: MethodAddr) -> Option<MethodAddr> {
        let forgotten = self.references.set_gone(addr)?;
        self.references.forget(forgotten)
    }

    /// A peer that was gone is there again, as another process may be under its name.
    pub fn set_back(&mut self, addr: MethodAddr) {
        if let Some(known) = self.references.by_method(addr) {
            self.references.set_back(known);
        }
    }

    /// The oldest unexpected message of a class.
    pub(crate) fn take_unexpected(&mut self, class: u8) -> Option<Unexpected> {
        let queue = self
            .unexpected
            .iter_mut()
            .find(|(other, _)| *other == class);
        let message = queue?.1.pop_front()?;
        self.arrived -= 1;
        self.taken -= message.buffer.len() + ENTRY;
        if let Some(reference) = self.references.get_mut(message.addr) {
            reference.pending -= 1;
        }
        Some(message)
    }

    /// Whether there are unexpected messages of any class.
    #[inline]
    pub(crate) fn has_unexpected(&self) -> bool {
        self.arrived > 0
    }

    /// Allocates an operation and has its peer kept.
    ///
    /// # Errors
    /// As [`Ops::alloc`].
    #[inline(always)]
    pub(crate) fn admit(&mut self, op: Op) -> Result<OpKey> {
        let addr = op.addr;
        let key = self.ops.alloc(op)?;
        if let Some(reference) = self.references.get_mut(addr) {
            reference.pending += 1;
        }
        Ok(key)
    }

    /// Ends what [`Self::admit`] began.
    #[inline(always)]
    pub(crate) fn release(&mut self, key: OpKey) -> Option<Op> {
        let op = self.ops.dealloc(key)?;
        if let Some(reference) = self.references.get_mut(op.addr) {
            reference.pending -= 1;
        }
        Some(op)
    }

    /// Collects an operation, and if it is not done yet has `drive` tell of it, which then needs no
    /// queue.
    ///
    /// # Errors
    /// As [`Self::collect`].
    #[inline]
    pub(crate) fn collect_or(
        &mut self,
        key: OpKey,
        context: u8,
        drive: impl FnOnce(&mut Self),
    ) -> Result<Option<Completion>> {
        if !self.is_going(key, context)? {
            return self.collect(key, context);
        }
        self.wanted = key;
        drive(self);
        if std::mem::replace(&mut self.wanted, NO_KEY) != NO_KEY {
            return Ok(None);
        }
        let Some(mut op) = self.release(key) else {
            return Ok(None);
        };
        op.end(self.caught);
        Ok(self.told_of(key, op))
    }

    /// Whether [`Self::collect_or`] still waits for the end of an operation.
    pub(crate) fn is_wanted(&self, key: OpKey) -> bool {
        self.wanted == key
    }

    /// Whether an operation of a context is not done yet.
    #[inline]
    fn is_going(&self, key: OpKey, context: u8) -> Result<bool> {
        match self.ops.get(key) {
            Some(op) if op.context == Some(context) => Ok(op.outcome.is_none()),
            _ => Err(Code::EINVAL),
        }
    }

    /// Collects an operation if it is done.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an operation that there is not, or that belongs to another context.
    #[inline]
    pub(crate) fn collect(&mut self, key: OpKey, context: u8) -> Result<Option<Completion>> {
        if self.is_going(key, context)? {
            return Ok(None);
        }
        self.done[context as usize].remove(&mut self.ops, key);
        Ok(self.leave(key))
    }

    /// Takes an operation out that has succeeded: what it has moved, and what it has kept.
    #[inline]
    pub(crate) fn take_success(&mut self, key: OpKey) -> Option<(u64, Option<Box<dyn Keep>>)> {
        let op = self.ops.get(key)?;
        let Some(Ok(len)) = op.outcome else {
            return None;
        };
        self.done[op.context? as usize].remove(&mut self.ops, key);
        Some((len, self.release(key)?.kept))
    }

    /// Collects whatever is done in a context, the oldest first.
    #[inline]
    pub(crate) fn collect_any(&mut self, context: u8) -> Option<Completion> {
        let key = self.done[context as usize].pop(&mut self.ops)?;
        self.leave(key)
    }

    #[inline(always)]
    fn leave(&mut self, key: OpKey) -> Option<Completion> {
        let op = self.release(key)?;
        self.told_of(key, op)
    }

    /// What the application is told of an operation that is over.
    #[inline(always)]
    fn told_of(&self, key: OpKey, op: Op) -> Option<Completion> {
        Some(Completion {
            id: OpId::new(self.method, key),
            outcome: op.outcome?,
            user: op.user,
            buffers: op.kept.map_or_else(Vec::new, |kept| kept.into_buffers()),
        })
    }

    /// Nobody will ask for the completions of a context any more.
    pub(crate) fn close_context(&mut self, context: u8) {
        while self.collect_any(context).is_some() {}
        for (_, op) in self.ops.iter_mut() {
            if op.context == Some(context) {
                op.context = None;
            }
        }
    }
}
