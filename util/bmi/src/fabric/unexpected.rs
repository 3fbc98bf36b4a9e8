//! Unexpected messages: untagged ones, into buffers that take many, and from there to the desk.
//!
//! While the application does not fetch what has arrived, buffers that are full are not posted
//! again: then messages wait with the provider, which holds their senders up when it has enough.

#![expect(unsafe_code, reason = "buffers that the endpoint writes into")]

use std::ptr::NonNull;

use selvedge::{Context, Endpoint, Errno, FiAddr, IovMut, OpFlags, msg};

use super::mark;
use crate::control::desk::Desk;
use crate::support::{gossip, heap};
use crate::{Code, Error};

/// Bytes of the largest unexpected message.
pub(super) const SIZE: usize = 16 << 10;
/// Bytes of a buffer: some of the largest, or many small ones.
const SLAB: usize = 128 << 10;
/// Buffers that are posted: while one is emptied and posted again, the others take.
const SLABS: usize = 4;

/// What a message's data says: its tag, and its class.
pub(super) const fn data(tag: i32, class: u8) -> u64 {
    tag as u32 as u64 | (class as u64) << 32
}

/// Tag and class of a message's data.
pub(super) const fn parse(data: u64) -> (i32, u8) {
    (data as u32 as i32, (data >> 32) as u8)
}

/// The buffers.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    slabs: Vec<Slab>,
    /// Those that are not posted.
    idle: Vec<usize>,
}

/// One buffer. The endpoint writes into it while it is posted, so there is no reference to it but
/// to the bytes of messages that have arrived.
#[derive(Debug)]
struct Slab(NonNull<u8>);

// SAFETY: an address of memory that this value owns.
unsafe impl Send for Slab {}
// SAFETY: shared references give nothing but addresses.
unsafe impl Sync for Slab {}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the block came from the C library; the endpoint, which `Fabric` drops first, was
        // the only other one to have it.
        unsafe { heap::free(self.0.as_ptr()) };
    }
}

impl Slabs {
    /// Makes and posts all.
    pub(super) fn open(&mut self, ep: &dyn Endpoint) -> Result<(), Error> {
        for index in 0..SLABS {
            let base = heap::pages(SLAB).ok_or_else(|| {
                Error::new(
                    Code::ENOMEM,
                    format!("a buffer of {SLAB} bytes for messages"),
                )
            })?;
            self.slabs.push(Slab(base));
            self.idle.push(index);
        }
        self.post(ep)
            .map_err(|errno| Error::new(errno.into(), "a buffer for unexpected messages"))
    }

    /// Posts those that are not.
    fn post(&mut self, ep: &dyn Endpoint) -> selvedge::Result {
        while let Some(&index) = self.idle.last() {
            let iov = [IovMut::from_raw(self.slabs[index].0.as_ptr().cast(), SLAB)];
            let msg = msg::RecvMsg {
                iov: &iov,
                desc: &[],
                src: FiAddr::UNSPEC,
                context: Context(mark::SLAB | index as u64),
            };
            // SAFETY: the memory is this list's until it is dropped, which is after the endpoint;
            // while it is posted, only bytes that a completion has named are read.
            unsafe { ep.recvmsg(&msg, OpFlags::MULTI_RECV) }?;
            self.idle.pop();
        }
        Ok(())
    }

    /// Whether some should be posted.
    #[inline]
    pub(super) fn are_wanted(&self, desk: &Desk) -> bool {
        !self.idle.is_empty() && desk.has_room()
    }

    /// Posts those that should be.
    #[cold]
    pub(super) fn refill(&mut self, ep: &dyn Endpoint) {
        match self.post(ep) {
            Ok(()) | Err(Errno::Again) => {}
            Err(errno) => gossip::err(format_args!("no buffer for unexpected messages: {errno}")),
        }
    }

    /// The `len` bytes of a message at address `at` of a buffer; nothing where it would not lie in
    /// it.
    pub(super) fn bytes(&self, context: u64, at: usize, len: usize) -> Option<&[u8]> {
        let slab = self.slabs.get((context & !mark::SLAB) as usize)?;
        let offset = at.checked_sub(slab.0.addr().get())?;
        let end = offset.checked_add(len)?;
        if end > SLAB || len > SIZE {
            return None;
        }
        let first = slab.0.as_ptr().wrapping_add(offset);
        // SAFETY: the bytes lie in the buffer, by the comparison; they were zeroed at first, and
        // the completion that named them ended the endpoint's right to write them.
        let bytes = unsafe { std::slice::from_raw_parts(first, len) };
        Some(bytes)
    }

    /// The endpoint has given a buffer back.
    pub(super) fn give_back(&mut self, context: u64) {
        let index = (context & !mark::SLAB) as usize;
        if index < self.slabs.len() && !self.idle.contains(&index) {
            self.idle.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_has_every_tag_and_class() {
        for tag in [0, 1, -1, i32::MIN, i32::MAX] {
            for class in [0, 7, u8::MAX] {
                assert_eq!(parse(data(tag, class)), (tag, class));
            }
        }
    }
}
