//! Unexpected messages: untagged messages in multi-receive buffers, copied into the queues.
//!
//! While the application does not fetch messages, full buffers are not posted again. Then messages
//! wait in the provider, whose backpressure stops their senders.

#![expect(unsafe_code, reason = "buffers that the endpoint writes into")]

use std::ptr::NonNull;

use selvedge::{Context, Endpoint, Errno, FiAddr, IovMut, OpFlags, msg};

use super::wire::context_flags;
use crate::control::queues::MethodQueues;
use crate::support::{gossip, heap};
use crate::{Code, Error};

/// Largest unexpected message in bytes.
pub(super) const SIZE: usize = 16 << 10;
/// Size of a buffer in bytes: several messages of the largest size.
const SLAB: usize = 128 << 10;
/// Number of posted buffers: while one is emptied and posted again, the others receive.
const SLABS: usize = 4;

/// The multi-receive buffers of an endpoint.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    slabs: Vec<Slab>,
    /// Indices of buffers that are not posted.
    idle: Vec<usize>,
}

/// One buffer. The endpoint writes into it while it is posted, so references exist only to the
/// bytes of received messages.
#[derive(Debug)]
struct Slab(NonNull<u8>);

// SAFETY: the value is the address of memory that it owns, which is bound to no thread.
unsafe impl Send for Slab {}
// SAFETY: shared references give nothing but addresses.
unsafe impl Sync for Slab {}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: the block came from the C library. The endpoint, which `Fabric` drops first, had
        // the only other access to it.
        unsafe { heap::free(self.0.as_ptr()) };
    }
}

impl Slabs {
    /// Allocates and posts all buffers.
    pub(super) fn open(&mut self, ep: &dyn Endpoint) -> Result<(), Error> {
        for index in 0..SLABS {
            let base = heap::pages(SLAB).ok_or_else(|| {
                Error::new(
                    Code::ENOMEM,
                    format!("cannot allocate a buffer of {SLAB} bytes for unexpected messages"),
                )
            })?;
            self.slabs.push(Slab(base));
            self.idle.push(index);
        }
        self.post(ep).map_err(|errno| {
            Error::new(errno.into(), "cannot post a buffer for unexpected messages")
        })
    }

    /// Posts the idle buffers.
    fn post(&mut self, ep: &dyn Endpoint) -> selvedge::Result {
        while let Some(&index) = self.idle.last() {
            let iov = [IovMut::from_raw(self.slabs[index].0.as_ptr().cast(), SLAB)];
            let msg = msg::RecvMsg {
                iov: &iov,
                desc: &[],
                src: FiAddr::UNSPEC,
                context: Context(context_flags::SLAB | index as u64),
            };
            // SAFETY: the list owns the memory until it is dropped, after the endpoint. While a
            // buffer is posted, only bytes that a completion has named are read.
            unsafe { ep.recvmsg(&msg, OpFlags::MULTI_RECV) }?;
            self.idle.pop();
        }
        Ok(())
    }

    /// Returns whether idle buffers exist and the queues have room for their messages.
    #[inline]
    pub(super) fn should_post(&self, queues: &MethodQueues) -> bool {
        !self.idle.is_empty() && queues.has_room()
    }

    /// Posts the idle buffers; they stay idle if the endpoint has no room.
    #[cold]
    pub(super) fn refill(&mut self, ep: &dyn Endpoint) {
        match self.post(ep) {
            Ok(()) | Err(Errno::Again) => {}
            Err(errno) => gossip::err(format_args!(
                "cannot post a buffer for unexpected messages: {errno}"
            )),
        }
    }

    /// The `len` bytes of a message at address `addr`; `None` if they are not inside the buffer.
    pub(super) fn bytes(&self, context: u64, addr: usize, len: usize) -> Option<&[u8]> {
        let slab = self.slabs.get((context & !context_flags::SLAB) as usize)?;
        let offset = addr.checked_sub(slab.0.addr().get())?;
        let end = offset.checked_add(len)?;
        if end > SLAB || len > SIZE {
            return None;
        }
        let first = slab.0.as_ptr().wrapping_add(offset);
        // SAFETY: the comparison shows that the bytes lie in the buffer. They were zeroed at first,
        // and the completion that named them ended the endpoint's right to write them.
        let bytes = unsafe { std::slice::from_raw_parts(first, len) };
        Some(bytes)
    }

    /// Marks a buffer as idle, after the endpoint released it.
    pub(super) fn release(&mut self, context: u64) {
        let index = (context & !context_flags::SLAB) as usize;
        if index < self.slabs.len() && !self.idle.contains(&index) {
            self.idle.push(index);
        }
    }
}
