//! State of another context, and messages queued for it.

use std::collections::VecDeque;

use selvedge::{Context, FiAddr};

use super::Invocation;
use crate::net::Net;

/// Another context, or this one.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) net: usize,
    pub(super) addr: FiAddr,
    /// The key of all memory of the peer.
    pub(super) key: u64,
    /// Messages that wait for room in the fabric.
    outgoing: VecDeque<QueuedMessage>,
    /// The oldest invocation of the peer that is still being fetched, and all later ones.
    pub(super) fetch_queue: VecDeque<QueuedInvocation>,
    /// Special memory that the peer has announced.
    pub(super) blocks: Vec<Block>,
    pub(super) state: State,
    /// Whether messages other than barrier messages were sent to the peer since the last flush.
    pub(super) owes_flush: bool,
    /// Whether a watch is posted, which reports the failure of the peer.
    pub(super) is_watched: bool,
    /// Token of the last status response, and the number of barriers that the peer had entered.
    pub(super) entered: Option<(u64, u64)>,
}

/// An outgoing message, which is queued if the fabric has no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutgoingMessage<'a> {
    pub(super) tag: u64,
    pub(super) segments: [&'a [u8]; 2],
    /// Context of the completion that confirms the send, if one is needed.
    pub(super) completion: Option<Context>,
}

#[derive(Debug)]
struct QueuedMessage {
    tag: u64,
    bytes: Vec<u8>,
    completion: Option<Context>,
}

/// Connection state of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Connected,
    /// The peer has finalized; its end is not a failure.
    Finalized,
    Failed,
}

/// An entry in the queue of invocations.
#[derive(Debug)]
pub(super) enum QueuedInvocation {
    Ready(Invocation),
    /// The number of the operation that fetches the invocation.
    Fetching(u64),
}

/// Memory of a peer that is written directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) key: u64,
    /// The remote address by which operations of the fabric access the first byte.
    pub(super) base: u64,
}

impl Peer {
    pub(super) fn new(net: usize, addr: FiAddr, key: u64) -> Self {
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

    pub(super) fn has_failed(&self) -> bool {
        self.state == State::Failed
    }

    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Queues a message. Returns whether the queue was empty.
    pub(super) fn queue(&mut self, message: &OutgoingMessage<'_>) -> bool {
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
    pub(super) fn send_backlog(&mut self, net: &Net) -> selvedge::Result {
        while let Some(QueuedMessage {
            tag,
            bytes,
            completion,
        }) = self.outgoing.front()
        {
            match *completion {
                None => net.send(self.addr, *tag, bytes)?,
                Some(context) => net.send_with_completion(self.addr, *tag, bytes, context)?,
            }
            self.outgoing.pop_front();
        }
        Ok(())
    }

    /// Drops queued messages and announced memory.
    pub(super) fn forget(&mut self) {
        self.outgoing.clear();
        self.blocks.clear();
    }

    /// The block that contains all of these bytes.
    #[inline]
    pub(super) fn block_of(&self, address: u64, len: u64) -> Option<&Block> {
        self.blocks
            .iter()
            .find(|block| block.contains(address, len))
    }
}

impl Block {
    #[inline]
    pub(super) fn contains(&self, address: u64, len: u64) -> bool {
        address
            .checked_sub(self.start)
            .is_some_and(|offset| offset <= self.len && len <= self.len - offset)
    }
}
