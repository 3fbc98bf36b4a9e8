//! Posting atomics: operands are borrowed for the call or in the buffer, earlier values come back
//! in the buffer.

#![expect(
    unsafe_code,
    reason = "the slots keep the promise that posting makes about memory"
)]

use std::ffi::c_void;

use super::port::Memory;
use crate::atomic::{Ioc, IocMut, Op, Target};
use crate::owned::Buf;
use crate::{Context, Endpoint, Errno, FiAddr, OpFlags, Result};

/// An atomic to post.
#[derive(Clone, Copy, Debug)]
pub(super) enum AtomicPost {
    /// With the operands in the buffer.
    Base { target: Target },
    /// With [`Operands::operand`]; earlier values go into the buffer.
    Fetch { target: Target },
    /// As [`Self::Fetch`], with [`Operands::compare`], too.
    Compare { target: Target },
}

/// What a post borrows for the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operands<'a> {
    pub(super) operand: &'a [u8],
    pub(super) compare: &'a [u8],
}

impl Operands<'_> {
    /// Those of a post that borrows nothing.
    pub(super) const NONE: Self = Self {
        operand: &[],
        compare: &[],
    };
}

impl AtomicPost {
    /// Whose memory it changes.
    pub(super) fn peer(self) -> FiAddr {
        let (Self::Base { target } | Self::Fetch { target } | Self::Compare { target }) = self;
        target.dest
    }

    /// How many bytes of earlier values there will be, if there are any. A read has no operands, but
    /// as many values as the buffer's length says.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] when they do not fit.
    pub(super) fn results(self, operand: &[u8], buf: &Buf) -> Result<Option<usize>> {
        let len = match self {
            Self::Base { .. } => return Ok(None),
            Self::Fetch { target } if target.op == Op::AtomicRead => buf.len(),
            Self::Fetch { .. } | Self::Compare { .. } => operand.len(),
        };
        match len <= buf.capacity() {
            true => Ok(Some(len)),
            false => Err(Errno::TooSmall),
        }
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
        operands: Operands<'_>,
        memory: &Memory,
        context: Context,
    ) -> Result {
        let (message, desc) = (memory.message, [memory.desc]);
        let room = |count| [IocMut::from_raw(memory.room.base, count)];
        let injected = flags | OpFlags::INJECT;
        let Operands { operand, compare } = operands;
        match self {
            Self::Base { target } => {
                let iov = [elements(&target, message.base, message.len)?];
                let rma_iov = [target.elements(iov[0].count)];
                let msg = target.msg(&iov, &desc, &rma_iov, context);
                // SAFETY: the caller makes the promise of `atomicmsg`.
                unsafe { ep.atomicmsg(&msg, flags) }
            }
            Self::Fetch { target } => {
                let is_read = target.op == Op::AtomicRead;
                let iov = match is_read {
                    true => [elements(&target, message.base, message.len)?],
                    false => [given(&target, operand)?],
                };
                let rma_iov = [target.elements(iov[0].count)];
                let result = room(iov[0].count);
                let iov = if is_read { &[][..] } else { &iov };
                let msg = target.msg(iov, &[], &rma_iov, context);
                // SAFETY: the caller makes the promise of `fetch_atomicmsg` for the results;
                // `operand` is borrowed for this call, which is as long as injected ones are used.
                unsafe { ep.fetch_atomicmsg(&msg, &result, &desc, injected) }
            }
            Self::Compare { target } => {
                let (iov, compare) = ([given(&target, operand)?], [given(&target, compare)?]);
                let rma_iov = [target.elements(iov[0].count)];
                let result = room(iov[0].count);
                let msg = target.msg(&iov, &[], &rma_iov, context);
                // SAFETY: as for a fetch, and for `compare` as for `operand`.
                unsafe { ep.compare_atomicmsg(&msg, &compare, &[], &result, &desc, injected) }
            }
        }
    }
}

/// Whole elements of the target's type.
fn elements(target: &Target, base: *const c_void, len: usize) -> Result<Ioc> {
    let size = target.datatype.size();
    if !len.is_multiple_of(size) {
        return Err(Errno::Inval);
    }
    Ok(Ioc::from_raw(base, len / size))
}

fn given(target: &Target, bytes: &[u8]) -> Result<Ioc> {
    elements(target, bytes.as_ptr().cast(), bytes.len())
}
