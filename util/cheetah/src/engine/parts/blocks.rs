//! Blocks of special memory: those of this context, and those that peers have announced.

use std::sync::Arc;

use selvedge::FiAddr;
use selvedge::owned::SharedRegion;

use crate::net::RemoteAddr;

/// Memory of a peer that is written directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) key: u64,
    /// The remote address by which operations of the fabric access the first byte.
    pub(crate) base: u64,
}

impl Block {
    /// Returns the remote address by which operations of the fabric access `address`, which is in
    /// the block.
    #[inline]
    pub(crate) fn remote_addr(&self, peer: FiAddr, address: u64) -> RemoteAddr {
        RemoteAddr {
            peer,
            addr: self.base + (address - self.start),
            key: self.key,
        }
    }

    #[inline]
    pub(crate) fn contains(&self, address: u64, len: u64) -> bool {
        address
            .checked_sub(self.start)
            .is_some_and(|offset| offset <= self.len && len <= self.len - offset)
    }
}

/// The special memory of this context.
#[derive(Debug, Default)]
pub(crate) struct Blocks(pub(crate) Vec<OwnBlock>);

#[derive(Debug)]
pub(crate) struct OwnBlock {
    pub(crate) block: Block,
    pub(crate) region: Arc<SharedRegion>,
    pub(crate) net: usize,
    /// The contexts to which the block has been announced.
    pub(crate) announced_to: Vec<usize>,
}

impl OwnBlock {
    /// Copies `bytes`, which a peer has sent, into the block at `address`.
    pub(crate) fn store(&self, address: u64, bytes: &[u8]) {
        let offset = (address - self.block.start) as usize;
        let copied = self.region.copy_from(offset, bytes);
        debug_assert!(copied.is_ok(), "the block was found by its bytes");
    }
}

impl Blocks {
    /// Returns the block that contains all `len` bytes at `address`.
    #[inline]
    pub(crate) fn find(&self, address: u64, len: u64) -> Option<&OwnBlock> {
        self.0.iter().find(|own| own.block.contains(address, len))
    }

    #[inline]
    pub(crate) fn contain(&self, address: u64, len: u64) -> bool {
        self.find(address, len).is_some()
    }
}
