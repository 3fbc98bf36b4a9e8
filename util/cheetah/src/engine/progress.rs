//! Progress: reads completions, and completes the operations that they name.

use std::time::Instant;

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Errno, FiAddr};

use super::ops::op::Op;
use super::parts::completion::CompletionKind;
use super::state::{BATCH, Engine};
use crate::Error;
use crate::bell::BellName;
use crate::net;

/// Maximum number of batches of one poll, so that a flood does not block the caller.
const BATCHES: usize = 16;

impl Engine {
    /// Progresses operations and rings bells. Returns whether there was an event.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        self.has_progressed = false;
        self.owes_flush = false;
        // Receives are posted before the completions are handled, which may take long.
        self.receives.repost(&self.nets);
        for net in 0..self.nets.len() {
            self.drain(net);
        }
        if !self.suspects.is_empty() {
            self.fail_suspects();
        }
        if !self.backlog.is_empty() || !self.to_post.is_empty() {
            self.retry();
        }
        self.has_progressed
    }

    #[inline]
    fn drain(&mut self, net: usize) {
        for _ in 0..BATCHES {
            match self.nets[net].poll(&mut *self.entries, &mut *self.from) {
                Ok(0) => return,
                Ok(count) => {
                    self.has_progressed = true;
                    for index in 0..count {
                        let (entry, from) = (self.entries[index], self.from[index]);
                        self.on_completion(net, &entry, from);
                    }
                    if count < BATCH {
                        return;
                    }
                }
                Err(Errno::Avail) => {
                    self.has_progressed = true;
                    self.on_error(net);
                }
                Err(errno) => {
                    self.fail(Error::Fabric {
                        context: self.rank,
                        detail: format!("completion queue: {errno}"),
                    });
                    return;
                }
            }
        }
    }

    #[inline]
    fn on_completion(&mut self, net: usize, entry: &Entry, from: FiAddr) {
        let index = usize::try_from(from.0).ok();
        let sender = index.and_then(|index| self.senders[net].get(index));
        let peer = sender.copied().filter(|&peer| peer < self.peers.len());
        if entry.flags.contains(CompletionFlags::REMOTE_WRITE) {
            if let Some(peer) = peer {
                self.ring_for(peer, BellName::from_word(entry.data));
            }
            return;
        }
        match CompletionKind::from_context(entry.context) {
            CompletionKind::Buffer(index) => self.handle_buffer(net, index, peer, entry),
            CompletionKind::Op(op) => self.op_done(op),
            CompletionKind::Barrier(_) => self.barrier.message_sent(),
            CompletionKind::Watch(_) | CompletionKind::Unreported(_) => {}
        }
    }

    #[cold]
    fn on_error(&mut self, net: usize) {
        let Some(error) = self.nets[net].error() else {
            return;
        };
        let detail = format!("{} ({})", error.detail, error.errno);
        let kind = CompletionKind::from_context(error.entry.context);
        if let CompletionKind::Barrier(_) = kind {
            self.barrier.message_sent();
        }
        match kind {
            CompletionKind::Watch(peer)
            | CompletionKind::Unreported(peer)
            | CompletionKind::Barrier(peer)
                if net::is_peer_failure(error.errno) =>
            {
                self.suspects.push((peer, detail, Instant::now()));
            }
            CompletionKind::Unreported(peer) | CompletionKind::Barrier(peer) => {
                self.fail(self.operation_error(peer, &detail))
            }
            CompletionKind::Op(op) => self.op_failed(op, error.errno, &detail),
            CompletionKind::Buffer(index) => {
                self.receives.mark_idle(index);
                log::warn!("context {}: receive failed: {detail}", self.rank);
            }
            CompletionKind::Watch(peer) => self.watch_ended(peer, &detail),
        }
    }

    fn op_done(&mut self, number: u64) {
        match self.ops.remove(&number) {
            Some(Op::Put(op)) => self.ring_local(op.put.local_bell),
            Some(Op::PutReceive(op)) => self.put_received(&op),
            Some(Op::Get(op)) => self.get_done(op),
            Some(Op::Fetch(op)) => self.fetched(number, op),
            Some(op) => {
                log::warn!("context {}: {op:?} completes too early", self.rank);
            }
            None => {}
        }
    }

    #[cold]
    pub(super) fn op_failed(&mut self, number: u64, errno: Errno, detail: &str) {
        let Some(op) = self.ops.remove(&number) else {
            return;
        };
        let peer = op.peer();
        if net::is_peer_failure(errno) {
            self.fail_peer(peer, detail);
        }
        match (op, self.check_alive(peer)) {
            (Op::Fetch(op), _) => self.fetch_failed(number, &op),
            (Op::PutReceive(op), _) => self.put_receive_failed(&op, errno),
            (op, Err(error)) => self.abort_op(op, &error),
            (op, Ok(())) => self.fail_op(op, &self.operation_error(peer, detail)),
        }
    }
}
