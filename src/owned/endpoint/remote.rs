//! Posting reads and writes of a peer's memory.

#![expect(
    unsafe_code,
    reason = "the slots keep the promise that posting makes about memory"
)]

use super::port::Memory;
use crate::rma::{ReadMsg, RmaIov, WriteMsg};
use crate::{Context, Endpoint, FiAddr, IovMut, OpFlags, Result};

/// A place in a peer's registered memory: a [`crate::owned::Window`] of its, for instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer.
    pub peer: FiAddr,
    /// The first byte, as in [`RmaIov::addr`].
    pub addr: u64,
    /// The region's key.
    pub key: u64,
}

/// A read or write to post.
#[derive(Clone, Copy, Debug)]
pub(super) enum RemotePost {
    /// Of the message in the buffer.
    Write { to: Remote, data: Option<u64> },
    /// Into the buffer, over the message that is there.
    Read { from: Remote },
}

impl Remote {
    fn piece(&self, len: usize) -> [RmaIov; 1] {
        [RmaIov {
            addr: self.addr,
            len,
            key: self.key,
        }]
    }
}

impl RemotePost {
    /// Whose memory it accesses.
    pub(super) fn peer(self) -> FiAddr {
        let (Self::Write { to: place, .. } | Self::Read { from: place }) = self;
        place.peer
    }

    /// Calls the provider.
    ///
    /// # Safety
    /// `memory` is valid, and nobody else touches it, until this function fails, the completion
    /// with `context` has been read, or `ep` has been dropped.
    pub(super) unsafe fn submit(
        self,
        ep: &dyn Endpoint,
        flags: OpFlags,
        memory: &Memory,
        context: Context,
    ) -> Result {
        let (message, desc) = (memory.message, [memory.desc]);
        match self {
            Self::Write { to, data } => {
                let msg = WriteMsg {
                    iov: &[message],
                    desc: &desc,
                    dest: to.peer,
                    rma_iov: &to.piece(message.len),
                    context,
                    data: data.unwrap_or(0),
                };
                let flags = match data {
                    Some(_) => flags | OpFlags::REMOTE_CQ_DATA,
                    None => flags,
                };
                // SAFETY: the caller makes the promise of `writemsg`.
                unsafe { ep.writemsg(&msg, flags) }
            }
            Self::Read { from } => {
                let room = IovMut::from_raw(memory.room.base, message.len);
                let msg = ReadMsg {
                    iov: &[room],
                    desc: &desc,
                    src: from.peer,
                    rma_iov: &from.piece(message.len),
                    context,
                };
                // SAFETY: the caller makes the promise of `readmsg`; the message is part of the
                // room.
                unsafe { ep.readmsg(&msg, OpFlags::empty()) }
            }
        }
    }
}
