//! Counters of copies, which show the savings by special memory.

/// Counts of payload copies that a context has made, or the fabric on its behalf, since its start.
///
/// A message that its sender has packed is *packed* into memory of the network or of this library
/// and *delivered* out of it by its receiver. Packing by the application itself is not counted. A
/// put into special memory is *placed* once, by its initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copies {
    /// Messages copied from the caller's memory.
    pub packed: u64,
    /// Bytes of these messages.
    pub packed_bytes: u64,
    /// Messages, puts and gets copied to their destination.
    pub delivered: u64,
    /// Bytes of these messages, puts and gets.
    pub delivered_bytes: u64,
    /// Puts copied directly to their destination.
    pub placed: u64,
    /// Bytes of these puts.
    pub placed_bytes: u64,
}

impl Copies {
    /// All copies of messages and puts.
    pub fn all(&self) -> u64 {
        self.packed + self.delivered + self.placed
    }

    #[inline]
    pub(crate) fn packed(&mut self, len: usize) {
        self.packed += 1;
        self.packed_bytes += len as u64;
    }

    #[inline]
    pub(crate) fn delivered(&mut self, len: usize) {
        self.delivered += 1;
        self.delivered_bytes += len as u64;
    }

    #[inline]
    pub(crate) fn placed(&mut self, len: usize) {
        self.placed += 1;
        self.placed_bytes += len as u64;
    }
}
