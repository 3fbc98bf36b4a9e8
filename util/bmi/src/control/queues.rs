//! The queues of a method: completions and unexpected messages that the method reports, and the
//! operation and peer tables that the control layer keeps for it.

use std::collections::VecDeque;

use crate::ids::{CONTEXTS, MethodAddr, MethodIndex, OpId, OpKey};
use crate::support::gossip;
use crate::support::heap::HeapBuf;
use crate::support::op_queue::OpQueue;
use crate::support::ops::{Op, Ops, Retained};
use crate::support::references::References;
use crate::{Addr, Buffer, Code, Result};

/// Limit in bytes for queued unexpected messages. Above the limit no further messages are taken
/// from the fabric.
const UNEXPECTED_LIMIT: usize = 4 << 20;
/// Bytes that each queued message counts in addition to its payload.
const ENTRY_OVERHEAD: usize = 128;

/// The key of no operation.
const NO_KEY: OpKey = OpKey(0);

/// Operation table, completion queues, unexpected-message queues and peer table of one method.
#[derive(Debug)]
pub struct MethodQueues {
    method: MethodIndex,
    /// Operations that are posted and not yet collected.
    pub ops: Ops,
    /// Completed operations, by context.
    completed: [OpQueue; CONTEXTS],
    pub(crate) references: References,
    /// Unexpected messages in arrival order, by class.
    unexpected: Vec<(u8, VecDeque<Unexpected>)>,
    /// Number of queued unexpected messages.
    unexpected_count: usize,
    /// Bytes of queued unexpected messages, with [`ENTRY_OVERHEAD`] for each.
    unexpected_bytes: usize,
    /// The operation that the holder of the lock is testing; [`NO_KEY`] otherwise.
    tested: OpKey,
    /// Outcome of the tested operation, valid once `tested` is [`NO_KEY`] again.
    tested_outcome: Result<u64>,
    /// An event was reported since the lock was last released.
    pub(crate) has_events: bool,
}

/// A completed operation.
#[derive(Debug)]
pub struct Completion {
    /// The operation's id; 0 if the operation was complete when its post returned.
    pub id: OpId,
    /// Number of bytes sent or received, or the error.
    pub outcome: Result<u64>,
    /// The value of [`crate::Post::user`].
    pub user: u64,
    /// The buffers of the post. After a receive, the message fills them from the first buffer on.
    pub buffers: Vec<Buffer>,
}

/// An unexpected message.
#[derive(Debug)]
pub struct Unexpected {
    /// The sender.
    pub addr: Addr,
    /// The sender's tag.
    pub tag: i32,
    /// The message.
    pub buffer: HeapBuf,
}

impl MethodQueues {
    pub(crate) fn new(method: MethodIndex) -> Self {
        Self {
            method,
            ops: Ops::default(),
            completed: std::array::from_fn(|_| OpQueue::new()),
            references: References::new(method),
            unexpected: Vec::new(),
            unexpected_count: 0,
            unexpected_bytes: 0,
            tested: NO_KEY,
            tested_outcome: Ok(0),
            has_events: false,
        }
    }

    /// Reports that an operation completed, with the number of bytes moved or the error. From now
    /// on the operation's memory belongs to the application again.
    #[inline]
    pub fn complete(&mut self, key: OpKey, outcome: Result<u64>) {
        if key == self.tested {
            // Collected by the current test, before another thread can test it.
            self.tested = NO_KEY;
            self.tested_outcome = outcome;
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
                self.completed[context as usize].add(&mut self.ops, key);
                self.has_events = true;
            }
            // The operation's context was closed: the completion is dropped.
            None => drop(self.free_op(key)),
        }
    }

    /// Queues an unexpected message. If memory is exhausted, the message is lost and the loss is
    /// logged.
    pub fn receive_unexpected(&mut self, from: MethodAddr, tag: i32, class: u8, bytes: &[u8]) {
        let (Ok(addr), Some(buffer)) = (self.references.register(from), HeapBuf::copy_of(bytes))
        else {
            let len = bytes.len();
            return gossip::err(format_args!(
                "no memory for an unexpected message of {len} bytes: the message is lost"
            ));
        };
        if let Some(reference) = self.references.get_mut(addr) {
            reference.pending += 1;
        }
        self.unexpected_count += 1;
        self.unexpected_bytes += bytes.len() + ENTRY_OVERHEAD;
        self.has_events = true;
        let message = Unexpected { addr, tag, buffer };
        match self.unexpected_of(class) {
            Some(queue) => queue.push_back(message),
            None => self.unexpected.push((class, [message].into())),
        }
    }

    /// Returns whether the queued unexpected messages are below the limit, so that the method may
    /// take more from the fabric.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.unexpected_bytes < UNEXPECTED_LIMIT
    }

    /// Registers a peer that connected without a lookup (the seed's
    /// `bmi_method_addr_reg_callback`).
    ///
    /// # Errors
    /// [`Code::ENOBUFS`] when the peer table is full.
    pub fn register(&mut self, addr: MethodAddr) -> Result<Addr> {
        self.references.register(addr)
    }

    /// Marks a peer as disconnected. A peer without a lookup can be forgotten once the application
    /// has no reference to it. Returns the address of a peer that was forgotten now, if any.
    pub fn set_disconnected(&mut self, addr: MethodAddr) -> Option<MethodAddr> {
        let forgotten = self.references.set_disconnected(addr)?;
        self.references.forget(forgotten)
    }

    /// Marks a peer as connected again: another process may have taken its name.
    pub fn set_connected(&mut self, addr: MethodAddr) {
        if let Some(addr_found) = self.references.by_method(addr) {
            self.references.set_connected(addr_found);
        }
    }

    /// Removes the oldest unexpected message of a class.
    pub(crate) fn take_unexpected(&mut self, class: u8) -> Option<Unexpected> {
        let message = self.unexpected_of(class)?.pop_front()?;
        self.unexpected_count -= 1;
        self.unexpected_bytes -= message.buffer.len() + ENTRY_OVERHEAD;
        if let Some(reference) = self.references.get_mut(message.addr) {
            reference.pending -= 1;
        }
        Some(message)
    }

    fn unexpected_of(&mut self, class: u8) -> Option<&mut VecDeque<Unexpected>> {
        let mut queues = self.unexpected.iter_mut();
        queues
            .find(|queue| queue.0 == class)
            .map(|queue| &mut queue.1)
    }

    /// Returns whether unexpected messages of any class are queued.
    #[inline]
    pub(crate) fn has_unexpected(&self) -> bool {
        self.unexpected_count > 0
    }

    /// Allocates an operation and counts it as a use of its peer.
    ///
    /// # Errors
    /// As [`Ops::alloc`].
    #[inline(always)]
    pub(crate) fn alloc_op(&mut self, op: Op) -> Result<OpKey> {
        let addr = op.addr;
        let key = self.ops.alloc(op)?;
        if let Some(reference) = self.references.get_mut(addr) {
            reference.pending += 1;
        }
        Ok(key)
    }

    /// Frees an operation and its use of the peer ([`Self::alloc_op`]).
    #[inline(always)]
    pub(crate) fn free_op(&mut self, key: OpKey) -> Option<Op> {
        let op = self.ops.dealloc(key)?;
        if let Some(reference) = self.references.get_mut(op.addr) {
            reference.pending -= 1;
        }
        Some(op)
    }

    /// Collects an operation. If it is not complete yet, runs `progress` and collects the
    /// completion that `progress` reports without queueing it.
    ///
    /// # Errors
    /// As [`Self::collect`].
    #[inline]
    pub(crate) fn collect_after(
        &mut self,
        key: OpKey,
        context: u8,
        progress: impl FnOnce(&mut Self),
    ) -> Result<Option<Completion>> {
        if !self.is_pending(key, context)? {
            return self.collect(key, context);
        }
        self.tested = key;
        progress(self);
        if std::mem::replace(&mut self.tested, NO_KEY) != NO_KEY {
            return Ok(None);
        }
        let Some(mut op) = self.free_op(key) else {
            return Ok(None);
        };
        op.end(self.tested_outcome);
        Ok(self.completion(key, op))
    }

    /// Returns whether [`Self::collect_after`] still waits for the completion of an operation.
    pub(crate) fn is_tested(&self, key: OpKey) -> bool {
        self.tested == key
    }

    /// Returns whether an operation of a context is not complete yet.
    #[inline]
    fn is_pending(&self, key: OpKey, context: u8) -> Result<bool> {
        match self.ops.get(key) {
            Some(op) if op.context == Some(context) => Ok(op.outcome.is_none()),
            _ => Err(Code::EINVAL),
        }
    }

    /// Collects an operation if it is complete.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown operation, or one that belongs to another context.
    #[inline]
    pub(crate) fn collect(&mut self, key: OpKey, context: u8) -> Result<Option<Completion>> {
        if self.is_pending(key, context)? {
            return Ok(None);
        }
        self.completed[context as usize].remove(&mut self.ops, key);
        Ok(self.free_completed(key))
    }

    /// Removes an operation that succeeded. Returns the bytes moved and the retained memory.
    #[inline]
    pub(crate) fn take_success(&mut self, key: OpKey) -> Option<(u64, Option<Box<dyn Retained>>)> {
        let op = self.ops.get(key)?;
        let Some(Ok(len)) = op.outcome else {
            return None;
        };
        self.completed[op.context? as usize].remove(&mut self.ops, key);
        Some((len, self.free_op(key)?.retained))
    }

    /// Collects the oldest completion of a context.
    #[inline]
    pub(crate) fn collect_any(&mut self, context: u8) -> Option<Completion> {
        let key = self.completed[context as usize].pop(&mut self.ops)?;
        self.free_completed(key)
    }

    #[inline(always)]
    fn free_completed(&mut self, key: OpKey) -> Option<Completion> {
        let op = self.free_op(key)?;
        self.completion(key, op)
    }

    /// Converts a completed operation into the application's completion.
    #[inline(always)]
    fn completion(&self, key: OpKey, op: Op) -> Option<Completion> {
        Some(Completion {
            id: OpId::new(self.method, key),
            outcome: op.outcome?,
            user: op.user,
            buffers: op
                .retained
                .map_or_else(Vec::new, |retained| retained.into_buffers()),
        })
    }

    /// Drops the completions of a context, those of pending operations included.
    pub(crate) fn close_context(&mut self, context: u8) {
        while self.collect_any(context).is_some() {}
        for (_, op) in self.ops.iter_mut() {
            if op.context == Some(context) {
                op.context = None;
            }
        }
    }
}
