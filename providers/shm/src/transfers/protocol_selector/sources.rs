//! The buffers from which a peer sent last.

use crate::transfers::incoming::SourceSegments;

/// The addresses of the buffers of the last large messages.
///
/// Bytes of a buffer that was sent shortly before are in a cache near the receiver. One copy by the
/// kernel is then faster than two copies; for other bytes it often is slower.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentSources {
    addrs: [u64; RECENT],
    oldest: usize,
}

/// The number of buffers.
const RECENT: usize = 4;

impl RecentSources {
    /// Notes a message. Returns whether its first segment begins at one of the last addresses.
    /// Special memory is not noted: its bytes are copied by another protocol.
    pub(crate) fn note(&mut self, segments: &SourceSegments) -> bool {
        if segments.are_special() {
            return false;
        }
        let addr = segments.list[0].addr;
        let is_recent = self.addrs.contains(&addr);
        if !is_recent {
            self.addrs[self.oldest] = addr;
            self.oldest = (self.oldest + 1) % RECENT;
        }
        is_recent
    }
}
