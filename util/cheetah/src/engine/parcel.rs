//! A [`Parcel`] is memory that the application packs a message into and then commits.
//!
//! The memory is special memory where possible, and the target reads the message from there. This
//! saves the copy from ordinary memory into memory of the network.

#![expect(unsafe_code, reason = "memory of the domain's as a slice")]

use std::sync::Arc;

use selvedge::Allocation;

use super::Engine;
use super::invoke::Bytes;
use crate::net::Net;
use crate::recv::Aligned;
use crate::wire::Source;

/// Memory for one message.
#[derive(Debug)]
pub(crate) struct Parcel {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    /// Memory of the domain: peers may read it, only this handle writes it.
    Special(Arc<dyn Allocation>),
    /// Used when no special memory is available.
    Ordinary(Aligned),
}

/// The special memory for messages.
#[derive(Debug, Default)]
pub(super) struct Parcels {
    /// Free memory, by the binary logarithm of its size.
    free: Vec<Vec<Arc<dyn Allocation>>>,
    /// Bytes of all this memory, free or in use.
    total: usize,
}

/// Maximum of [`Parcels::total`]. Messages beyond it use ordinary memory.
pub(crate) const SPECIAL_MAX: usize = 64 << 20;
const SPECIAL_MIN: usize = 4096;

impl Parcel {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Ordinary(own) => own.bytes(),
            // SAFETY: the allocation is at least this long and does not change: peers have no right
            // to write it, and this value has the only handle.
            Memory::Special(memory) => unsafe {
                std::slice::from_raw_parts(memory.base(), self.len)
            },
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Ordinary(own) => own.bytes_mut(),
            // SAFETY: as in `bytes`; no peer has been told to read the memory yet.
            Memory::Special(memory) => unsafe {
                std::slice::from_raw_parts_mut(memory.base(), self.len)
            },
        }
    }

    /// Returns whether the parcel lies in special memory.
    pub(crate) fn is_special(&self) -> bool {
        matches!(&self.memory, Memory::Special(memory) if memory.is_special())
    }

    /// Returns the location of the bytes, from which the target reads them.
    pub(super) fn source(&self, net: &Net) -> Source {
        match &self.memory {
            Memory::Special(memory) => Source {
                addr: memory.remote_addr(),
                key: memory.key(),
                len: self.len as u64,
            },
            Memory::Ordinary(own) => {
                let address = own.bytes().as_ptr().expose_provenance();
                net.source(address as u64, self.len as u64)
            }
        }
    }
}

impl Parcels {
    /// Puts the special memory of a completed message on the free list.
    pub(super) fn release(&mut self, bytes: Bytes) {
        if let Bytes::Parcel(Parcel {
            memory: Memory::Special(memory),
            ..
        }) = bytes
        {
            let class = class_of(memory.len());
            self.of(class).push(memory);
        }
    }

    fn of(&mut self, class: usize) -> &mut Vec<Arc<dyn Allocation>> {
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        &mut self.free[class]
    }
}

fn class_of(len: usize) -> usize {
    len.next_power_of_two().max(SPECIAL_MIN).trailing_zeros() as usize
}

impl Engine {
    /// Reserves memory for a message of `len` bytes to context `to`. The memory is special if the
    /// context runs on this host and [`SPECIAL_MAX`] is not exceeded.
    pub(crate) fn reserve(&mut self, to: usize, len: usize) -> Parcel {
        let special = self.reserve_special(to, len);
        let memory =
            special.map_or_else(|| Memory::Ordinary(Aligned::zeroed(len)), Memory::Special);
        Parcel { memory, len }
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
