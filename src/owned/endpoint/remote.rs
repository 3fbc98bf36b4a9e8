//! `RemoteAddr`: an address in a peer's registered memory.

use crate::FiAddr;
use crate::rma::RmaIov;

/// An address in a peer's registered memory, such as a [`crate::owned::SharedRegion`] of that peer.
#[expect(
    clippy::exhaustive_structs,
    reason = "three numbers that callers write"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// The peer.
    pub peer: FiAddr,
    /// The address of the first byte, as in [`RmaIov::addr`].
    pub addr: u64,
    /// The region's key.
    pub key: u64,
}

impl RemoteAddr {
    /// The `len` bytes from this address on.
    pub(super) const fn iov(&self, len: usize) -> RmaIov {
        RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }
    }
}
