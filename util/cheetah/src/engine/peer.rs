//! What is known of another context, and what waits on its account.

use std::collections::VecDeque;

use selvedge::{Context, FiAddr};

use super::Arrival;
use crate::net::Net;

/// Another context, or this one.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) net: usize,
    pub(super) addr: FiAddr,
    /// The key of all its memory.
    pub(super) key: u64,
    /// Messages that the fabric had no room for.
    outgoing: VecDeque<Kept>,
    /// Its arrivals from the first one on that is still being fetched.
    pub(super) line: VecDeque<InLine>,
    /// Special memory of its that it has told us of.
    pub(super) blocks: Vec<Block>,
    pub(super) state: State,
    /// Whether it was sent anything but barriers since the last flush.
    pub(super) owes_flush: bool,
    /// Whether a watch is posted that will tell of its end.
    pub(super) is_watched: bool,
    /// Barriers that it has entered, when it was last asked: the number of the question, and the
    /// answer.
    pub(super) entered: Option<(u64, u64)>,
}

/// What is sent, to be kept if there is no room for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter<'a> {
    pub(super) tag: u64,
    pub(super) pieces: [&'a [u8]; 2],
    /// A completion with this context is to say that it has left.
    pub(super) told: Option<Context>,
}

#[derive(Debug)]
struct Kept {
    tag: u64,
    bytes: Vec<u8>,
    told: Option<Context>,
}

/// Whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Here,
    /// It has finalized; its end is no loss.
    Left,
    Lost,
}

/// A place in the line of arrivals.
#[derive(Debug)]
pub(super) enum InLine {
    Here(Arrival),
    /// The operation that fetches it.
    Coming(u64),
}

/// Memory of a peer that is written directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) key: u64,
    /// What operations name the first byte by.
    pub(super) base: u64,
}

impl Peer {
    pub(super) fn new(net: usize, addr: FiAddr, key: u64) -> Self {
        Self {
            net,
            addr,
            key,
            outgoing: VecDeque::new(),
            line: VecDeque::new(),
            blocks: Vec::new(),
            state: State::Here,
            owes_flush: false,
            is_watched: false,
            entered: None,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    #[inline]
    pub(super) fn has_backlog(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Keeps a message; says whether it is the only one.
    pub(super) fn queue(&mut self, letter: &Letter<'_>) -> bool {
        self.outgoing.push_back(Kept {
            tag: letter.tag,
            bytes: letter.pieces.concat(),
            told: letter.told,
        });
        self.outgoing.len() == 1
    }

    /// Sends what was kept, as far as there is room.
    ///
    /// # Errors
    /// As the fabric's; what was not sent is still kept.
    pub(super) fn send_backlog(&mut self, net: &Net) -> selvedge::Result {
        while let Some(Kept { tag, bytes, told }) = self.outgoing.front() {
            match *told {
                None => net.send(self.addr, *tag, bytes)?,
                Some(context) => net.send_off(self.addr, *tag, bytes, context)?,
            }
            self.outgoing.pop_front();
        }
        Ok(())
    }

    /// Nothing will be sent to it any more.
    pub(super) fn forget(&mut self) {
        self.outgoing.clear();
        self.blocks.clear();
    }

    /// The block that holds all of these bytes.
    #[inline]
    pub(super) fn block_of(&self, address: u64, len: u64) -> Option<&Block> {
        self.blocks.iter().find(|block| block.holds(address, len))
    }
}

impl Block {
    #[inline]
    pub(super) fn holds(&self, address: u64, len: u64) -> bool {
        address
            .checked_sub(self.start)
            .is_some_and(|offset| offset <= self.len && len <= self.len - offset)
    }
}
