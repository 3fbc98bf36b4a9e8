//! `Views`: the lent messages of one peer that this endpoint has not given back.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use crate::memory::mapping_quota::MappingPermit;
use crate::smr::region::ClosedFlag;
use crate::smr::special::PeerBlock;

/// A mapped block of a peer's incarnation, and its part of the mapping quota. Lent messages share
/// one counted pointer to all that they need after the peer has ended.
#[derive(Debug)]
pub(crate) struct LendableBlock {
    pub(crate) memory: PeerBlock,
    /// Whether the sender has closed the region that names the bytes; unset before the first loan.
    closed: OnceLock<ClosedFlag>,
    _permit: MappingPermit,
}

impl LendableBlock {
    /// Keeps the block with the permit of its mapping.
    pub(crate) fn new(memory: PeerBlock, permit: MappingPermit) -> Self {
        Self {
            memory,
            closed: OnceLock::new(),
            _permit: permit,
        }
    }
}

/// The bytes of a lent message in the mapping of a peer's block. The value keeps the mapping after
/// the peer has ended.
#[derive(Debug)]
pub(crate) struct LentBytes {
    block: Arc<LendableBlock>,
    offset: usize,
    len: usize,
}

impl LentBytes {
    /// The `len` bytes from `offset` on, which are inside the block.
    pub(crate) fn new(block: &Arc<LendableBlock>, offset: usize, len: usize) -> Self {
        let block = Arc::clone(block);
        Self { block, offset, len }
    }

    /// Returns the address of the first byte.
    pub(crate) fn address(&self) -> *const u8 {
        self.block.memory.bytes().address(self.offset, self.len)
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sets the flag of the sender's incarnation at the first loan from the block. Returns whether
    /// the sender has not closed its region.
    pub(crate) fn begin(&self, flag: impl FnOnce() -> ClosedFlag) -> bool {
        !self.block.closed.get_or_init(flag).is_closed()
    }

    /// Whether the sender has not closed the region that named the bytes.
    pub(crate) fn is_intact(&self) -> bool {
        let closed = self.block.closed.get();
        closed.is_some_and(|closed| !closed.is_closed())
    }
}

/// A lent message that was reported and that the application has not taken yet.
#[derive(Debug)]
pub(crate) struct PendingView {
    pub(crate) lent: LentBytes,
    pub(crate) msg_id: u32,
}

/// The lent messages of one peer. Their numbers are never reused in an endpoint.
///
/// Both lists are short, because a peer has at most [`crate::transfers::MAX_OPS`] operations
/// outstanding, and most entries leave a list in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// The number of lent messages of the peer so far, for the numbers.
    count: u32,
    /// Messages that wait for [`selvedge::Lending::take_lent`], with their numbers.
    pending: VecDeque<(usize, PendingView)>,
    /// The `msg_id`s of the messages that the peer's present incarnation has lent, and their
    /// numbers.
    held: VecDeque<(u32, usize)>,
}

/// Returns the index of the peer that has lent the message with this number.
pub(crate) fn peer_index_of(number: usize) -> usize {
    number >> 32
}

impl Views {
    /// Adds a message of the peer with this index, and returns its number.
    pub(crate) fn add(&mut self, peer_index: u32, view: PendingView) -> usize {
        self.count = self.count.wrapping_add(1);
        let number = (peer_index as usize) << 32 | self.count as usize;
        self.held.push_back((view.msg_id, number));
        self.pending.push_back((number, view));
        number
    }

    /// Removes a message that was reported, for the application.
    pub(crate) fn take(&mut self, number: usize) -> Option<PendingView> {
        if let Some(&(first, _)) = self.pending.front()
            && first == number
        {
            return self.pending.pop_front().map(|(_, view)| view);
        }
        let mut numbers = self.pending.iter();
        let position = numbers.position(|&(pending, _)| pending == number)?;
        self.pending.remove(position).map(|(_, view)| view)
    }

    /// Ends the loan of a message. Returns `false` if it has ended before, with the peer's
    /// incarnation.
    pub(crate) fn end(&mut self, msg_id: u32, number: usize) -> bool {
        if self.held.front() == Some(&(msg_id, number)) {
            return self.held.pop_front().is_some();
        }
        let mut held = self.held.iter();
        let position = held.position(|&entry| entry == (msg_id, number));
        position.is_some_and(|position| self.held.swap_remove_front(position).is_some())
    }

    /// Ends the loans of the peer's incarnation. The messages stay readable.
    pub(crate) fn end_all(&mut self) {
        self.held.clear();
    }

    /// Whether the message with this `msg_id` is lent.
    pub(crate) fn has(&self, msg_id: u32) -> bool {
        self.held.iter().any(|&(held, _)| held == msg_id)
    }

    /// Returns the number of messages that are lent.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
