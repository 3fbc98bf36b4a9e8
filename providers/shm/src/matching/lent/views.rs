//! `Views`: the lent messages of one peer that this endpoint has not given back.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::memory::mapping_quota::MappingPermit;
use crate::smr::bytes::Bytes;
use crate::smr::region::ClosedFlag;

/// The bytes of a lent message in the mapping of a peer's block. The value keeps the mapping, and
/// its part of the mapping quota, after the peer has ended.
#[derive(Debug)]
pub(crate) struct LentBytes {
    pub(crate) bytes: Bytes,
    _permit: Arc<MappingPermit>,
}

impl LentBytes {
    /// Keeps the bytes with the permit of their mapping.
    pub(crate) fn new(bytes: Bytes, permit: &Arc<MappingPermit>) -> Self {
        let _permit = Arc::clone(permit);
        Self { bytes, _permit }
    }
}

/// A lent message that was reported and that the application has not taken yet.
#[derive(Debug)]
pub(crate) struct PendingView {
    pub(crate) lent: LentBytes,
    /// Whether the sender has closed the region that named the bytes.
    pub(crate) closed: ClosedFlag,
    pub(crate) msg_id: u32,
}

/// The lent messages of one peer. Their numbers are never reused in an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// The number of lent messages of the peer so far, for the numbers.
    count: u32,
    /// Messages that wait for [`selvedge::Lending::take_lent`], by number.
    pending: FxHashMap<usize, PendingView>,
    /// The numbers of the messages that the peer's present incarnation has lent, by `msg_id`.
    held: FxHashMap<u32, usize>,
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
        self.held.insert(view.msg_id, number);
        self.pending.insert(number, view);
        number
    }

    /// Removes a message that was reported, for the application.
    pub(crate) fn take(&mut self, number: usize) -> Option<PendingView> {
        self.pending.remove(&number)
    }

    /// Ends the loan of a message. Returns `false` if it has ended before, with the peer's
    /// incarnation.
    pub(crate) fn end(&mut self, msg_id: u32, number: usize) -> bool {
        if self.held.get(&msg_id) != Some(&number) {
            return false;
        }
        self.held.remove(&msg_id).is_some()
    }

    /// Ends the loans of the peer's incarnation. The messages stay readable.
    pub(crate) fn end_all(&mut self) {
        self.held.clear();
    }

    /// Whether the message with this `msg_id` is lent.
    pub(crate) fn has(&self, msg_id: u32) -> bool {
        self.held.contains_key(&msg_id)
    }

    /// Returns the number of messages that are lent.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }
}
