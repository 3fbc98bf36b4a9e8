//! Sends messages to other contexts, or queues them while the fabric has no room.

use std::time::Instant;

use selvedge::{Errno, FiAddr};

use super::parts::completion::CompletionKind;
use super::parts::peer::OutgoingMessage;
use super::state::Engine;
use crate::net::wire::WireMessage;
use crate::net::{self, Net};

impl Engine {
    /// Sends a message, or queues it behind earlier ones. Never blocks.
    pub(super) fn send(&mut self, to: usize, message: &WireMessage, bytes: &[u8]) {
        let head = message.head();
        let context = CompletionKind::Unreported(to).context();
        let message = OutgoingMessage {
            tag: head.tag,
            segments: [head.bytes(), bytes],
            completion: None,
        };
        self.send_by(to, &message, |net, addr| {
            net.send_with_head(addr, &head, bytes, context)
        });
    }

    /// As [`Self::send`], for a barrier, which is not complete before the message was sent.
    pub(super) fn send_with_completion(&mut self, to: usize, message: &WireMessage) {
        let head = message.head();
        let (tag, words, context) = (
            head.tag,
            head.bytes(),
            CompletionKind::Barrier(to).context(),
        );
        let message = OutgoingMessage {
            tag,
            segments: [words, &[]],
            completion: Some(context),
        };
        self.send_by(to, &message, |net, addr| {
            net.send_with_completion(addr, tag, words, context)
        });
    }

    /// As [`Self::send`], for a message without a separate head.
    #[inline]
    pub(super) fn send_without_head(&mut self, to: usize, tag: u64, bytes: &[u8]) {
        let message = OutgoingMessage {
            tag,
            segments: [&[], bytes],
            completion: None,
        };
        self.send_by(to, &message, |net, addr| net.send(addr, tag, bytes));
    }

    #[inline]
    pub(super) fn send_by(
        &mut self,
        to: usize,
        message: &OutgoingMessage<'_>,
        send: impl FnOnce(&Net, FiAddr) -> selvedge::Result,
    ) {
        let peer = &self.peers[to];
        if !peer.has_backlog() {
            let net = &self.nets[peer.net];
            match send(net, peer.addr) {
                Ok(()) => {
                    self.owes_flush |= net.defers_sends;
                    return;
                }
                Err(Errno::Again) => {}
                Err(errno) => return self.handle_send_error(to, errno),
            }
        }
        self.queue(to, message);
    }

    #[cold]
    pub(super) fn queue(&mut self, to: usize, message: &OutgoingMessage<'_>) {
        let peer = &mut self.peers[to];
        if peer.has_failed() {
            return;
        }
        if peer.queue(message) {
            self.backlog.push(to);
        }
    }

    #[cold]
    pub(super) fn handle_send_error(&mut self, to: usize, errno: Errno) {
        if net::is_peer_failure(errno) {
            // Earlier messages of the peer are handled first, because they may include a close
            // message.
            let error = format!("a message to the context was refused: {errno}");
            self.suspects.push((to, error, Instant::now()));
        } else {
            self.fail(self.operation_error(to, &errno.to_string()))
        }
    }

    #[cold]
    pub(super) fn retry(&mut self) {
        for _ in 0..self.to_post.len() {
            if let Some(op) = self.to_post.pop_front() {
                self.post_for(op);
            }
        }
        for to in std::mem::take(&mut self.backlog) {
            let peer = &mut self.peers[to];
            match peer.send_backlog(&self.nets[peer.net]) {
                Ok(()) => {
                    self.has_progressed = true;
                    self.owes_flush |= self.nets[self.peers[to].net].defers_sends;
                }
                Err(Errno::Again) => self.backlog.push(to),
                Err(errno) => self.handle_send_error(to, errno),
            }
        }
    }
}
