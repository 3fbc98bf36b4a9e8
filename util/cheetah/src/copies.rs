//! How often bytes are copied on their way: what special memory is there to save.

/// Copies of payload that a context has made, or had the fabric make, since its start.
///
/// A message that its sender has packed goes *packed* into memory of the network or of this library,
/// and is *delivered* out of it by its receiver. What is packed by the application itself, in
/// whatever memory, is not counted here. A put into special memory is *placed* once, by its
/// initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copies {
    /// Messages copied out of the caller's memory.
    pub packed: u64,
    /// Bytes of those.
    pub packed_bytes: u64,
    /// Messages, puts and gets copied to where they are read.
    pub delivered: u64,
    /// Bytes of those.
    pub delivered_bytes: u64,
    /// Puts copied directly to their place.
    pub placed: u64,
    /// Bytes of those.
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
