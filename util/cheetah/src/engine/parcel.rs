//! Parcels: special memory that the application packs a message into, in place, and then commits.
//!
//! The target reads it from there: one copy fewer than a message that is packed first and copied into
//! memory of the network afterwards.

#![expect(unsafe_code, reason = "memory of the domain's as a slice")]

use std::sync::Arc;

use selvedge::Allocation;

use super::Engine;
use super::invoke::Bytes;
use crate::net::Net;
use crate::recv::Aligned;
use crate::wire::Source;

/// Room for one message, to be filled.
#[derive(Debug)]
pub(crate) struct Parcel {
    memory: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    /// Peers can read it and nobody else can write it; this is its only handle.
    Special(Arc<dyn Allocation>),
    /// There was none.
    Ordinary(Aligned),
}

/// Special memory that is not in use, by the logarithm of its size.
#[derive(Debug, Default)]
pub(super) struct Parcels {
    free: Vec<Vec<Arc<dyn Allocation>>>,
    /// Bytes of all special memory for messages, used or not.
    total: usize,
}

/// Bytes of special memory that messages may take at a time; beyond it they take ordinary memory.
pub(crate) const MOST: usize = 64 << 20;
const LEAST: usize = 4096;

impl Parcel {
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Ordinary(own) => own.bytes(),
            // SAFETY: the allocation is at least this long, and nobody can change it: peers have no
            // right to, and this value has the only handle.
            Memory::Special(memory) => unsafe {
                std::slice::from_raw_parts(memory.base(), self.len)
            },
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Ordinary(own) => own.bytes_mut(),
            // SAFETY: as above; peers have not been told to read it yet.
            Memory::Special(memory) => unsafe {
                std::slice::from_raw_parts_mut(memory.base(), self.len)
            },
        }
    }

    /// Whether it is what it should be.
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
    /// Keeps the memory of a message that is over for the next one.
    pub(super) fn take_back(&mut self, bytes: Bytes) {
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
    len.next_power_of_two().max(LEAST).trailing_zeros() as usize
}

impl Engine {
    /// Room for a message of `len` bytes: special memory, unless there is too much of it in use.
    pub(crate) fn reserve(&mut self, to: usize, len: usize) -> Parcel {
        let special = self.reserve_special(to, len);
        let memory =
            special.map_or_else(|| Memory::Ordinary(Aligned::zeroed(len)), Memory::Special);
        Parcel { memory, len }
    }

    fn reserve_special(&mut self, to: usize, len: usize) -> Option<Arc<dyn Allocation>> {
        // Special memory belongs to one fabric; the last one is that of contexts near by.
        let net = self.nets.len() - 1;
        if len > MOST || self.peers.get(to)?.net != net {
            return None;
        }
        let class = class_of(len);
        if let Some(memory) = self.parcels.of(class).pop() {
            return Some(memory);
        }
        let size = 1 << class;
        if self.parcels.total + size > MOST {
            return None;
        }
        let memory = self.nets[net].readable(size).ok()?;
        self.parcels.total += size;
        Some(memory)
    }

    /// Gives the room of a message back that is not sent.
    pub(crate) fn abandon(&mut self, parcel: Parcel) {
        self.parcels.take_back(Bytes::Parcel(parcel));
    }
}
