//! `Budget`: the number of bytes that the heap has committed, and whether it may commit more.

use super::machine::memory;
use crate::system;

/// Committed bytes after which the available memory is read again, at most. Reading it takes as
/// long as committing some hundred KiB.
const INTERVAL_MAX: usize = 32 << 20;
/// How long no more is committed after the available memory was too small, in milliseconds. A
/// program that goes on allocating does not read the files of the kernel each time.
const PAUSE: u64 = 10;

/// The memory that the heap may commit.
pub(crate) struct Budget {
    limit: usize,
    committed: usize,
    /// Bytes that may be committed before the available memory is read again.
    unchecked: usize,
    /// When the pause ends, in milliseconds of the monotonic clock.
    paused_until: u64,
}

impl Budget {
    pub(crate) const EMPTY: Self = Self {
        limit: 0,
        committed: 0,
        unchecked: 0,
        paused_until: 0,
    };

    /// Sets the maximum number of committed bytes.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Whether the heap may commit anything.
    pub(crate) fn is_positive(&self) -> bool {
        self.limit > 0
    }

    /// Sets the number of committed bytes.
    pub(crate) fn set_committed(&mut self, committed: usize) {
        self.committed = committed;
    }

    /// Counts bytes that are committed without a grant.
    pub(crate) fn add(&mut self, len: usize) {
        self.committed = self.committed.saturating_add(len);
    }

    /// Counts bytes that were given back.
    pub(crate) fn subtract(&mut self, len: usize) {
        self.committed = self.committed.saturating_sub(len);
    }

    /// Whether `len` more bytes may be committed. Counts them then.
    pub(crate) fn grant(&mut self, len: usize) -> bool {
        let committed = self.committed.saturating_add(len);
        if committed > self.limit {
            return false;
        }
        if len <= self.unchecked {
            self.unchecked -= len;
        } else if !self.check(len) {
            return false;
        }
        self.committed = committed;
        true
    }

    /// Whether `len` bytes are a part of the available memory that leaves enough to the program and
    /// its neighbours, which touch memory that they have allocated before.
    fn check(&mut self, len: usize) -> bool {
        let now = system::milliseconds();
        if now < self.paused_until {
            return false;
        }
        let available = memory().map_or(0, |memory| memory.available);
        let Some(unchecked) = interval_after(len, available) else {
            self.paused_until = now + PAUSE;
            return false;
        };
        self.unchecked = unchecked;
        true
    }
}

/// Returns how many bytes may be committed without another check after `len` bytes; `None` if `len`
/// is more than half of what is available.
fn interval_after(len: usize, available: usize) -> Option<usize> {
    let rest = available.checked_sub(len).filter(|rest| *rest >= len)?;
    Some((rest / 8).min(INTERVAL_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_leaves_half_of_the_available_memory() {
        assert_eq!(interval_after(100, 199), None);
        assert_eq!(interval_after(100, 200), Some(12));
        assert_eq!(interval_after(0, 1 << 40), Some(INTERVAL_MAX));
        assert_eq!(interval_after(1, 0), None);
        assert_eq!(interval_after(usize::MAX, usize::MAX), None);
    }

    #[test]
    fn the_limit_holds_and_bytes_that_were_given_back_can_be_committed_again() {
        let mut budget = Budget::EMPTY;
        assert!(!budget.is_positive() && !budget.grant(1));
        budget.set_limit(100);
        assert!(budget.grant(60) && !budget.grant(41) && budget.grant(40));
        budget.subtract(40);
        assert!(budget.grant(40) && !budget.grant(1));
    }
}
