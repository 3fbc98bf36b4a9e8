//! Special memory: the blocks of this context, and the blocks that peers have announced.
//!
//! The owner announces a block to another context when that context first names an address in the
//! block. From then on that context reads and writes the block directly.

use std::sync::Arc;

use selvedge::FiAddr;
use selvedge::owned::SharedRegion;

use super::Engine;
use super::peer::Block;
use crate::net::RemoteAddr;
use crate::wire::WireMessage;
use crate::{Error, Result};

/// The special memory of this context.
#[derive(Debug, Default)]
pub(super) struct Blocks(Vec<OwnBlock>);

#[derive(Debug)]
pub(super) struct OwnBlock {
    block: Block,
    region: Arc<SharedRegion>,
    net: usize,
    /// The contexts to which the block has been announced.
    announced_to: Vec<usize>,
}

impl OwnBlock {
    /// Copies `bytes`, which a peer has sent, into the block at `address`.
    pub(super) fn store(&self, address: u64, bytes: &[u8]) {
        let offset = (address - self.block.start) as usize;
        let copied = self.region.copy_from(offset, bytes);
        debug_assert!(copied.is_ok(), "the block was found by its bytes");
    }
}

impl Blocks {
    /// Returns the block that contains all `len` bytes at `address`.
    #[inline]
    pub(super) fn find(&self, address: u64, len: u64) -> Option<&OwnBlock> {
        self.0.iter().find(|own| own.block.contains(address, len))
    }

    #[inline]
    pub(super) fn contain(&self, address: u64, len: u64) -> bool {
        self.find(address, len).is_some()
    }
}

impl Block {
    /// Returns the remote address by which operations of the fabric access `address`, which is in
    /// the block.
    #[inline]
    pub(super) fn remote_addr(&self, peer: FiAddr, address: u64) -> RemoteAddr {
        RemoteAddr {
            peer,
            addr: self.base + (address - self.start),
            key: self.key,
        }
    }
}

impl Engine {
    /// Allocates `len` zeroed bytes of special memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`] if the memory cannot be allocated.
    pub(crate) fn allocate(&mut self, len: usize) -> Result<Arc<SharedRegion>> {
        let rank = self.rank;
        let net = self.nets.len() - 1;
        let region = self.nets[net].shared_region(len);
        let region = region.map_err(|error| Error::NoMemory {
            context: rank,
            purpose: format!("{len} bytes of special memory: {error}"),
        })?;
        let region = Arc::new(region);
        let block = Block {
            start: region.base().expose_provenance() as u64,
            len: len as u64,
            key: region.key(),
            base: region.addr(0),
        };
        self.blocks.0.push(OwnBlock {
            block,
            region: Arc::clone(&region),
            net,
            announced_to: Vec::new(),
        });
        Ok(region)
    }

    /// Frees special memory, and withdraws it from the contexts to which it was announced.
    pub(crate) fn free(&mut self, region: Arc<SharedRegion>) {
        let start = region.base().addr() as u64;
        let at = self
            .blocks
            .0
            .iter()
            .position(|own| own.block.start == start);
        if let Some(at) = at {
            let own = self.blocks.0.swap_remove(at);
            for peer in own.announced_to {
                self.send(peer, &WireMessage::Withdrawn { start }, &[]);
            }
        }
        drop(region);
    }

    /// Announces the block that contains `address` to a context, unless the context knows it.
    #[cold]
    pub(super) fn announce_block(&mut self, to: usize, address: u64) {
        let net = self.peers[to].net;
        let own = self.blocks.0.iter_mut();
        let own = own
            .filter(|own| own.net == net)
            .find(|own| own.block.contains(address, 0));
        let Some(own) = own.filter(|own| !own.announced_to.contains(&to)) else {
            return;
        };
        own.announced_to.push(to);
        let Block {
            start,
            len,
            key,
            base,
        } = own.block;
        let message = WireMessage::Special {
            start,
            len,
            key,
            base,
        };
        self.send(to, &message, &[]);
    }

    pub(super) fn on_special(&mut self, from: usize, start: u64, len: u64, key: u64, base: u64) {
        let blocks = &mut self.peers[from].blocks;
        blocks.retain(|block| block.start != start);
        if start.checked_add(len).is_some() && base.checked_add(len).is_some() {
            blocks.push(Block {
                start,
                len,
                key,
                base,
            });
        }
    }

    pub(super) fn on_withdrawn(&mut self, from: usize, start: u64) {
        self.peers[from].blocks.retain(|block| block.start != start);
    }
}
