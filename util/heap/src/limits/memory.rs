//! `Memory`: how much there is, and how much of it is available.

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The memory that the process and its neighbours can have altogether.
    pub(crate) total: usize,
    /// The part of it that is not in use. The kernel can take back the rest of its caches.
    pub(crate) available: usize,
}

impl Memory {
    pub(super) const UNLIMITED: Self = Self {
        total: usize::MAX,
        available: usize::MAX,
    };

    pub(super) fn min(self, other: Self) -> Self {
        Self {
            total: self.total.min(other.total),
            available: self.available.min(other.available),
        }
    }
}
