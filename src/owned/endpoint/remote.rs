//! Places in a peer's memory.

use crate::FiAddr;
use crate::rma::RmaIov;

/// A place in a peer's registered memory: a [`crate::owned::Window`] of its, for instance.
#[expect(
    clippy::exhaustive_structs,
    reason = "three numbers that callers write"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer.
    pub peer: FiAddr,
    /// The first byte, as in [`RmaIov::addr`].
    pub addr: u64,
    /// The region's key.
    pub key: u64,
}

impl Remote {
    /// So many bytes from there on.
    pub(super) const fn iov(&self, len: usize) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}
