//! A [`Parcel`] is memory that the application packs a message into and then commits.
//!
//! The memory is special memory where possible, and the target reads the message from there. This
//! saves the copy from ordinary memory into memory of the network.

#![expect(unsafe_code, reason = "memory of the domain's as a slice")]

use std::sync::Arc;

use selvedge::Allocation;

use crate::memory::local::Local;
use crate::net::Net;
use crate::net::recv::Aligned;
use crate::net::wire::Source;

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

/// The bytes of an invocation. The variant names their owner until the target has fetched them.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Owned by the caller until the bell rings.
    Caller(Local),
    /// Owned by this context.
    Owned(Aligned),
    /// Owned by this context, in special memory.
    Parcel(Parcel),
}

/// The special memory for messages.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    /// Free memory, by the binary logarithm of its size.
    free: Vec<Vec<Arc<dyn Allocation>>>,
    /// Bytes of all this memory, free or in use.
    pub(crate) total: usize,
}

/// Maximum of [`Parcels::total`]. Messages beyond it use ordinary memory.
pub(crate) const SPECIAL_MAX: usize = 64 << 20;
const SPECIAL_MIN: usize = 4096;

impl Parcel {
    /// A parcel in special memory if there is some, of `len` bytes.
    pub(crate) fn new(special: Option<Arc<dyn Allocation>>, len: usize) -> Self {
        let memory =
            special.map_or_else(|| Memory::Ordinary(Aligned::zeroed(len)), Memory::Special);
        Self { memory, len }
    }

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
    pub(crate) fn source(&self, net: &Net) -> Source {
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
    pub(crate) fn release(&mut self, bytes: Bytes) {
        if let Bytes::Parcel(Parcel {
            memory: Memory::Special(memory),
            ..
        }) = bytes
        {
            let class = class_of(memory.len());
            self.of(class).push(memory);
        }
    }

    pub(crate) fn of(&mut self, class: usize) -> &mut Vec<Arc<dyn Allocation>> {
        if self.free.len() <= class {
            self.free.resize_with(class + 1, Vec::new);
        }
        &mut self.free[class]
    }
}

pub(crate) fn class_of(len: usize) -> usize {
    len.next_power_of_two().max(SPECIAL_MIN).trailing_zeros() as usize
}
