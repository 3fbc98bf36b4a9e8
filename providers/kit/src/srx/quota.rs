//! The memory quota of unexpected messages, with a share for each sender.

/// The memory that unexpected messages use, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct UnexpectedQuota {
    bytes: usize,
    limit: usize,
}

impl UnexpectedQuota {
    /// Makes a quota of `limit` bytes, of which none are used.
    pub const fn new(limit: usize) -> Self {
        Self { bytes: 0, limit }
    }

    /// The bytes in use; each message counts with its length and a fixed overhead.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The limit in bytes.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Whether `len` more bytes of a peer may be kept. `charged` is the sum of bytes that its kept
    /// messages count for, and `others` is the number of the other peers.
    ///
    /// The share that is reserved for each other peer remains available even if one peer has used
    /// all the rest; one message of each peer may always be kept.
    pub fn has_room(&self, len: usize, charged: usize, others: usize) -> bool {
        let share = (self.limit / 2 / (others + 1)).min(SHARE);
        let open = self.limit - share * others;
        charged == 0
            || charged.saturating_add(cost(len)) <= share
            || self.bytes.saturating_add(cost(len)) <= open
    }

    /// Charges a message of `len` bytes; `charged` is the sum of its sender.
    pub fn charge(&mut self, len: usize, charged: &mut usize) {
        *charged += cost(len);
        self.bytes += cost(len);
    }

    /// Releases a message of `len` bytes; `charged` is the sum of its sender.
    pub fn release(&mut self, len: usize, charged: &mut usize) {
        *charged -= cost(len);
        self.bytes -= cost(len);
    }
}

/// The bytes that are reserved for every peer, unless the limit is too small for that: some
/// hundreds of small messages.
const SHARE: usize = 64 << 10;

/// The bytes that an unexpected message of `len` bytes counts for: an empty message takes memory
/// too.
const fn cost(len: usize) -> usize {
    const OVERHEAD: usize = 128;
    len.saturating_add(OVERHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flooding_peer_leaves_the_others_their_share_and_every_peer_one_message() {
        let mut quota = UnexpectedQuota::new(1 << 20);
        let (mut flooding, mut other) = (0, 0);
        while quota.has_room(1000, flooding, 3) {
            quota.charge(1000, &mut flooding);
        }
        assert!(flooding > 500_000, "{flooding}");
        assert!(quota.has_room(usize::MAX, 0, 3));
        while quota.has_room(1000, other, 3) {
            quota.charge(1000, &mut other);
        }
        assert!(other > SHARE - 2000, "{other}");
        quota.release(1000, &mut flooding);
        assert!(!quota.has_room(1000, other, 3));
    }
}
