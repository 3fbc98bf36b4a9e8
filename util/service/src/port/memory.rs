//! `Memory`: the memory of messages that a port sends and receives.

use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::owned::Buf;

use super::address::Scheme;
use super::buffers::Buffers;
use crate::message::{Frame, SmallFrame};
use crate::wire::HEADER;
use crate::{Error, Message};

/// The memory of messages at one port. Threads use it without the lock of the hub.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) scheme: Scheme,
    /// Whether the transport copies a short frame when it is posted, so that the frame needs no
    /// buffer of a pool.
    copies_short_frames: bool,
    buffers: Mutex<Buffers>,
}

impl Memory {
    pub(super) fn new(scheme: Scheme, copies_short_frames: bool, buffers: Buffers) -> Self {
        Self {
            scheme,
            copies_short_frames,
            buffers: Mutex::new(buffers),
        }
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of this length.
    pub(crate) fn take(&self, len: usize) -> Result<Buf, Error> {
        self.buffers().take(len)
    }

    /// A message of `len` bytes: zeros, or bytes of earlier messages.
    pub(crate) fn message(&self, len: usize) -> Result<Message, Error> {
        if self.copies_short_frames
            && let Some(small) = SmallFrame::zeroed(len)
        {
            return Ok(Message::of(Frame::Small(small)));
        }
        self.take(HEADER.saturating_add(len)).map(Message::new)
    }

    /// A message with a copy of `bytes`.
    pub(crate) fn message_from(&self, bytes: &[u8]) -> Result<Message, Error> {
        if self.copies_short_frames
            && let Some(small) = SmallFrame::with_message(bytes)
        {
            return Ok(Message::of(Frame::Small(small)));
        }
        let mut message = self.message(bytes.len())?;
        message.copy_from_slice(bytes);
        Ok(message)
    }

    /// The frame in a buffer of a pool.
    pub(super) fn pooled(&self, frame: Frame) -> Result<Buf, Error> {
        match frame {
            Frame::Pooled(buf) => Ok(buf),
            Frame::Small(small) => {
                let mut buf = self.take(small.bytes().len())?;
                buf.copy_from_slice(small.bytes());
                Ok(buf)
            }
        }
    }

    /// The frame in memory from which this port sends. A frame of another connection may be in
    /// other memory.
    pub(super) fn sendable(&self, frame: Frame) -> Result<Frame, Error> {
        if self.copies_short_frames {
            return Ok(frame);
        }
        self.pooled(frame).map(Frame::Pooled)
    }

    /// Buffers that can be lent, if the transport can lend.
    pub(crate) fn lendable_buffers(&self) -> Buffers {
        match self.scheme {
            Scheme::Shm => self.buffers().of_special_memory(),
            Scheme::Tcp | Scheme::Ofi => self.buffers().of_ordinary_memory(),
        }
    }
}
