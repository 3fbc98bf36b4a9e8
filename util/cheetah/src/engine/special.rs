//! Special memory: the blocks of this context, and the blocks that peers have announced.
//!
//! The owner announces a block to a context when that one first names an address in it. From then
//! on the context reads and writes the block directly.

use std::sync::Arc;

use selvedge::FiAddr;
use selvedge::owned::SharedRegion;

use super::Engine;
use super::peer::Block;
use crate::net::Place;
use crate::wire::Said;
use crate::{Error, Result};

/// The special memory of this context.
#[derive(Debug, Default)]
pub(super) struct Blocks(Vec<Own>);

#[derive(Debug)]
pub(super) struct Own {
    block: Block,
    window: Arc<SharedRegion>,
    net: usize,
    /// The contexts that know the block.
    told: Vec<usize>,
}

impl Own {
    /// Copies bytes that a peer has sent to addresses in the block.
    pub(super) fn store(&self, address: u64, bytes: &[u8]) {
        let offset = (address - self.block.start) as usize;
        let copied = self.window.copy_from(offset, bytes);
        debug_assert!(copied.is_ok(), "the block was found by its bytes");
    }
}

impl Blocks {
    /// The block that contains all of these bytes.
    #[inline]
    pub(super) fn find(&self, address: u64, len: u64) -> Option<&Own> {
        self.0.iter().find(|own| own.block.holds(address, len))
    }

    #[inline]
    pub(super) fn contain(&self, address: u64, len: u64) -> bool {
        self.find(address, len).is_some()
    }
}

impl Block {
    /// The remote address of an address in the block.
    #[inline]
    pub(super) fn place(&self, peer: FiAddr, address: u64) -> Place {
        Place {
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
    /// When none is available.
    pub(crate) fn allocate(&mut self, len: usize) -> Result<Arc<SharedRegion>> {
        let me = self.me;
        let net = self.nets.len() - 1;
        let window = self.nets[net].window(len);
        let window = window.map_err(|error| Error::NoMemory {
            context: me,
            what: format!("{len} bytes of special memory: {error}"),
        })?;
        let window = Arc::new(window);
        let block = Block {
            start: window.base().expose_provenance() as u64,
            len: len as u64,
            key: window.key(),
            base: window.addr(0),
        };
        self.blocks.0.push(Own {
            block,
            window: Arc::clone(&window),
            net,
            told: Vec::new(),
        });
        Ok(window)
    }

    /// Frees special memory.
    pub(crate) fn free(&mut self, window: Arc<SharedRegion>) {
        let start = window.base().addr() as u64;
        let at = self
            .blocks
            .0
            .iter()
            .position(|own| own.block.start == start);
        if let Some(at) = at {
            let own = self.blocks.0.swap_remove(at);
            for peer in own.told {
                self.send(peer, &Said::Withdrawn { start }, &[]);
            }
        }
        drop(window);
    }

    /// Announces the block that contains `address` to a context.
    #[cold]
    pub(super) fn introduce_block(&mut self, to: usize, address: u64) {
        let net = self.peers[to].net;
        let own = self.blocks.0.iter_mut();
        let own = own
            .filter(|own| own.net == net)
            .find(|own| own.block.holds(address, 0));
        let Some(own) = own.filter(|own| !own.told.contains(&to)) else {
            return;
        };
        own.told.push(to);
        let Block {
            start,
            len,
            key,
            base,
        } = own.block;
        let said = Said::Special {
            start,
            len,
            key,
            base,
        };
        self.send(to, &said, &[]);
    }

    pub(super) fn hear_special(&mut self, from: usize, start: u64, len: u64, key: u64, base: u64) {
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

    pub(super) fn hear_withdrawn(&mut self, from: usize, start: u64) {
        self.peers[from].blocks.retain(|block| block.start != start);
    }
}
