//! State of another context, and messages queued for it.

use std::collections::VecDeque;

use selvedge::{Context, FiAddr};

use super::blocks::Block;
use crate::engine::ops::op::Invocation;
use crate::net::Net;

/// Another context, or this one.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) net: usize,
    pub(crate) addr: FiAddr,
    /// The key of all memory of the peer.
    pub(crate) key: u64,
    /// Messages that wait for room in the fabric.
    outgoing: VecDeque<QueuedMessage>,
    /// The oldest invocation of the peer that is still being fetched, and all later ones.
    pub(crate) fetch_queue: VecDeque<QueuedInvocation>,
    /// Special memory that the peer has announced.
    pub(crate) blocks: Vec<Block>,
    pub(crate) state: State,
    /// Whether messages other than barrier messages were sent to the peer since the last flush.
    pub(crate) owes_flush: bool,
    /// Whether a watch is posted, which reports the failure of the peer.
    pub(crate) is_watched: bool,
    /// Token of the last status response, and the number of barriers that the peer had entered.
    pub(crate) entered: Option<(u64, u64)>,
}

/// An outgoing message, which is queued if the fabric has no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutgoingMessage<'a> {
    pub(crate) tag: u64,
    pub(crate) segments: [&'a [u8]; 2],
    /// Context of the completion that confirms the send, if one is needed.
    pub(crate) completion: Option<Context>,
}

#[derive(Debug)]
struct QueuedMessage {
    tag: u64,
    bytes: Vec<u8>,
    completion: Option<Context>,
}

/// Connection state of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Connected,
    /// The peer has finalized; its end is not a failure.
    Finalized,
    Failed,
}

/// An entry in the queue of invocations.
#[derive(Debug)]
pub(crate) enum QueuedInvocation {
    Ready(Invocation),
    /// The number of the operation that fetches the invocation.
    Fetching(u64),
}

impl Peer {
    pub(crate) fn new(net: usize, addr: FiAddr, key: u64) -> Self {
        Self {
            net,
            addr,
            key,
            outgoing: VecDeque::new(),
            fetch_queue: VecDeque::new(),
            blocks: Vec::new(),
            state: State::Connected,
            owes_flush: false,
            is_watched: false,
            entered: None,
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Queues a message. Returns whether the queue was empty.
    pub(crate) fn queue(&mut self, message: &OutgoingMessage<'_>) -> bool {
        self.outgoing.push_back(QueuedMessage {
            tag: message.tag,
            bytes: message.segments.concat(),
            completion: message.completion,
        });
        self.outgoing.len() == 1
    }

    /// Sends queued messages as far as there is room.
    ///
    /// # Errors
    /// The fabric's error; unsent messages stay queued.
    pub(crate) fn send_backlog(&mut self, net: &Net) -> selvedge::Result {
        while let Some(message) = self.outgoing.front() {
            let (tag, bytes) = (message.tag, &message.bytes);
            match message.completion {
                None => net.send(self.addr, tag, bytes)?,
                Some(context) => net.send_with_completion(self.addr, tag, bytes, context)?,
            }
            self.outgoing.pop_front();
        }
        Ok(())
    }

    /// Drops queued messages and announced memory.
    pub(crate) fn forget(&mut self) {
        self.outgoing.clear();
        self.blocks.clear();
    }

    /// The block that contains all of these bytes.
    #[inline]
    pub(crate) fn block_of(&self, address: u64, len: u64) -> Option<&Block> {
        self.blocks
            .iter()
            .find(|block| block.contains(address, len))
    }
}
