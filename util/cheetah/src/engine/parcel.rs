//! Parcels: special memory that the application packs a message into, in place, and then commits.
//!
//! The target reads the message from there. This saves one copy compared to a message that is
//! packed first and copied into memory of the network afterwards.

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
    /// Readable by peers, writable only through this value's handle.
    Special(Arc<dyn Allocation>),
    /// Used when no special memory is available.
    Ordinary(Aligned),
}

/// Free special memory, by the logarithm of its size.
#[derive(Debug, Default)]
pub(super) struct Parcels {
    free: Vec<Vec<Arc<dyn Allocation>>>,
    /// Bytes of all special memory for messages, free or in use.
    total: usize,
}

/// Maximum of `total`; beyond it messages use ordinary memory.
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
            // SAFETY: as above; no peer was told to read it yet.
            Memory::Special(memory) => unsafe {
                std::slice::from_raw_parts_mut(memory.base(), self.len)
            },
        }
    }

    /// Whether it lies in special memory.
    pub(crate) fn is_special(&self) -> bool {
        matches!(&self.memory, Memory::Special(memory) if memory.is_special())
    }

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
    /// Returns the memory of a completed message to the free list.
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
    /// Reserves memory for a message of `len` bytes: special memory, within the limit.
    pub(crate) fn reserve(&mut self, to: usize, len: usize) -> Parcel {
        let special = self.reserve_special(to, len);
        let memory =
            special.map_or_else(|| Memory::Ordinary(Aligned::zeroed(len)), Memory::Special);
        Parcel { memory, len }
    }

    fn reserve_special(&mut self, to: usize, len: usize) -> Option<Arc<dyn Allocation>> {
        // Special memory belongs to one fabric; the last one connects the contexts of this host.
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

    /// Releases a reservation without sending it.
    pub(crate) fn release(&mut self, parcel: Parcel) {
        self.parcels.release(Bytes::Parcel(parcel));
    }
}
