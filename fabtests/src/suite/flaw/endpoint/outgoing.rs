//! What an endpoint with a defect sends.
//!
//! Bytes that a defect changes are copies that are never freed: a mutant lives for a moment.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use selvedge::{CompletionFlags, Context, FiAddr, Iov, OpFlags, Result, msg, tagged};

use super::FlawedEndpoint;
use crate::suite::flaw::Flaw;

/// A send whose bytes are a copy that is never freed.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) bytes: &'static [u8],
    pub(super) dest: FiAddr,
    pub(super) tag: Option<u64>,
    pub(super) context: Context,
    pub(super) data: u64,
    pub(super) flags: OpFlags,
}

impl FlawedEndpoint {
    /// Sends, in the way of the defect.
    pub(super) fn send(&self, mut out: Outgoing, is_whole: impl FnOnce() -> Result) -> Result {
        out.flags = self.flags(out.flags);
        match self.flaw {
            // As many bits for contexts as no test has peers.
            Flaw::WrongContext => self.post(&Outgoing {
                dest: FiAddr(out.dest.0 & u64::MAX >> 16),
                ..out
            }),
            Flaw::FlipsBit => self.post(&Outgoing {
                bytes: flipped(out.bytes),
                ..out
            }),
            Flaw::FlipsBitOfLarge if out.bytes.len() > 4096 => self.post(&Outgoing {
                bytes: flipped(out.bytes),
                ..out
            }),
            Flaw::CutsOff => {
                let len = out.bytes.len().saturating_sub(1);
                self.post(&Outgoing {
                    bytes: &out.bytes[..len],
                    ..out
                })
            }
            Flaw::SendsTwice => {
                self.post(&out)?;
                let data = out
                    .flags
                    .contains(OpFlags::REMOTE_CQ_DATA)
                    .then_some(out.data);
                let _ = self.inject_copy(out.bytes, out.dest, out.tag, data);
                Ok(())
            }
            Flaw::LosesFirst if !self.has_sent.swap(true, Ordering::Relaxed) => {
                self.invented(out.context, CompletionFlags::SEND)
            }
            Flaw::SwapsSends => self.swap(out),
            Flaw::HalvesTags => self.post(&Outgoing {
                tag: out.tag.map(|tag| tag & 0xffff_ffff),
                ..out
            }),
            Flaw::HalvesData => self.post(&Outgoing {
                data: out.data & 0xffff_ffff,
                ..out
            }),
            Flaw::ServesChildren if self.process != std::process::id() => Ok(()),
            Flaw::DeliversEarly | Flaw::IgnoresFences | Flaw::TakesAnyFlag => self.post(&out),
            _ => is_whole(),
        }
    }

    fn swap(&self, out: Outgoing) -> Result {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            None => *held = Some(out),
            Some(first) => {
                if let Err(errno) = self.post(&out) {
                    *held = Some(first);
                    return Err(errno);
                }
                // A queue that is full loses it: that is a defect, too.
                let _ = self.post(&first);
            }
        }
        Ok(())
    }

    fn post(&self, out: &Outgoing) -> Result {
        let iov = [Iov::new(out.bytes)];
        let &Outgoing {
            dest,
            context,
            data,
            flags,
            ..
        } = out;
        let (iov, desc) = (&iov[..], &[][..]);
        match out.tag {
            None => {
                let msg = msg::SendMsg {
                    iov,
                    desc,
                    dest,
                    context,
                    data,
                };
                // SAFETY: the bytes are never freed.
                unsafe { self.inner.sendmsg(&msg, flags) }
            }
            Some(tag) => {
                let msg = tagged::SendMsg {
                    iov,
                    desc,
                    dest,
                    tag,
                    context,
                    data,
                };
                // SAFETY: as above.
                unsafe { self.inner.tsendmsg(&msg, flags) }
            }
        }
    }

    /// Sends at the next read of the queue, out of the caller's buffer.
    pub(super) fn send_late(&self, out: Outgoing) -> Result {
        let Some(queue) = &self.queue else {
            return self.post(&out);
        };
        let inner = Arc::clone(&self.inner);
        queue.later(Box::new(move || {
            let late = Self::new(inner, Flaw::ReadsInjectLate, None, 0);
            // It is lost if the queue is full: a defect, too.
            let _ = late.post(&out);
        }));
        Ok(())
    }

    pub(super) fn injected(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        tag: Option<u64>,
        data: Option<u64>,
    ) -> Result {
        let inject = |bytes: &[u8], tag, data| self.inject_copy(bytes, dest, tag, data);
        match self.flaw {
            Flaw::ForgetsInjects => Ok(()),
            Flaw::InjectsAnySize if bytes.len() > self.inject_size => Ok(()),
            Flaw::FlipsBit => inject(flipped(bytes), tag, data),
            Flaw::SendsTwice => {
                inject(bytes, tag, data)?;
                let _ = inject(bytes, tag, data);
                Ok(())
            }
            Flaw::HalvesTags => inject(bytes, tag.map(|tag| tag & 0xffff_ffff), data),
            Flaw::HalvesData => inject(bytes, tag, data.map(|data| data & 0xffff_ffff)),
            _ => inject(bytes, tag, data),
        }
    }

    fn inject_copy(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        tag: Option<u64>,
        data: Option<u64>,
    ) -> Result {
        match tag {
            None => self.inner.inject(bytes, dest, data),
            Some(tag) => self.inner.tinject(bytes, dest, tag, data),
        }
    }
}

/// A copy that is never freed.
pub(in crate::suite::flaw) unsafe fn copied(iov: &[Iov]) -> &'static [u8] {
    let mut bytes = Vec::new();
    for piece in iov.iter().filter(|piece| piece.len > 0) {
        // SAFETY: the caller's promise.
        bytes
            .extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) });
    }
    bytes.leak()
}

/// The caller's own bytes, for longer than it lends them.
pub(super) unsafe fn lent(iov: &[Iov]) -> &'static [u8] {
    match iov {
        // SAFETY: the caller's promise.
        [piece] => unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) },
        _ => &[],
    }
}

pub(in crate::suite::flaw) fn flipped(bytes: &[u8]) -> &'static [u8] {
    let mut bytes = bytes.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 0x10;
    }
    bytes.leak()
}
