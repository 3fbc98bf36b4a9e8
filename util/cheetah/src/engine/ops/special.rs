//! Special memory: blocks of this context that peers access directly, and parcels.
//!
//! The owner announces a block to another context when that context first names an address in the
//! block. From then on that context reads and writes the block directly.

use std::sync::Arc;

use selvedge::Allocation;
use selvedge::owned::SharedRegion;

use crate::engine::parts::blocks::{Block, OwnBlock};
use crate::engine::parts::parcel::{Bytes, Parcel, SPECIAL_MAX, class_of};
use crate::engine::state::Engine;
use crate::net::wire::WireMessage;
use crate::{Error, Result};

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
        let starts_here = |own: &OwnBlock| own.block.start == start;
        if let Some(at) = self.blocks.0.iter().position(starts_here) {
            let own = self.blocks.0.swap_remove(at);
            for peer in own.announced_to {
                self.send(peer, &WireMessage::Withdrawn { start }, &[]);
            }
        }
        drop(region);
    }

    /// Announces the block that contains `address` to a context, unless the context knows it.
    #[cold]
    pub(crate) fn announce_block(&mut self, to: usize, address: u64) {
        let net = self.peers[to].net;
        let own = self.blocks.0.iter_mut();
        let own = own
            .filter(|own| own.net == net)
            .find(|own| own.block.contains(address, 0));
        let Some(own) = own.filter(|own| !own.announced_to.contains(&to)) else {
            return;
        };
        own.announced_to.push(to);
        let block = own.block;
        let message = WireMessage::Special {
            start: block.start,
            len: block.len,
            key: block.key,
            base: block.base,
        };
        self.send(to, &message, &[]);
    }

    pub(crate) fn on_special(&mut self, from: usize, start: u64, len: u64, key: u64, base: u64) {
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

    pub(crate) fn on_withdrawn(&mut self, from: usize, start: u64) {
        self.peers[from].blocks.retain(|block| block.start != start);
    }

    /// Reserves memory for a message of `len` bytes to context `to`. The memory is special if the
    /// context runs on this host and [`SPECIAL_MAX`] is not exceeded.
    pub(crate) fn reserve(&mut self, to: usize, len: usize) -> Parcel {
        Parcel::new(self.reserve_special(to, len), len)
    }

    fn reserve_special(&mut self, to: usize, len: usize) -> Option<Arc<dyn Allocation>> {
        // Special memory belongs to one fabric: the last of `nets`, which connects the contexts of
        // this host.
        let net = self.nets.len() - 1;
        if len > SPECIAL_MAX || self.peers.get(to)?.net != net {
            return None;
        }
        let class = class_of(len);
        if let Some(memory) = self.parcels.of(class).pop() {
            return Some(memory);
        }
        let size = 1 << class;
        if self.parcels.total + size > SPECIAL_MAX {
            return None;
        }
        let memory = self.nets[net].readable(size).ok()?;
        self.parcels.total += size;
        Some(memory)
    }

    /// Releases a parcel that will not be sent.
    pub(crate) fn release(&mut self, parcel: Parcel) {
        self.parcels.release(Bytes::Parcel(parcel));
    }
}
