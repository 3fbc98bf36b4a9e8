//! Atomics with a defect.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use selvedge::atomic::{self, AtomicMsg, Datatype, Family, Ioc, IocMut, Op, RmaIoc};
use selvedge::{Atomic, Desc, Errno, OpFlags, Result};

use super::FlawedEndpoint;
use crate::suite::flaw::Flaw;

impl Atomic for FlawedEndpoint {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        let size: usize = msg
            .iov
            .iter()
            .map(|ioc| ioc.count * msg.datatype.size())
            .sum();
        // Sixteen-byte elements want to be aligned.
        let zeros: &'static [u128] = vec![0; size.div_ceil(16)].leak();
        let nothing = [Ioc::from_raw(
            zeros.as_ptr().cast(),
            size / msg.datatype.size(),
        )];
        let mut changed = AtomicMsg {
            op: self.op(msg.op, elements(msg)),
            ..*msg
        };
        match self.flaw {
            Flaw::NoAtomics => (changed.iov, changed.op) = (&nothing, Op::Sum),
            // SAFETY: the caller's promise; an atomic that has no completion needs it no longer.
            Flaw::TwiceAtomics => unsafe { self.twice(msg)? },
            _ => {}
        }
        // SAFETY: the caller's promise, or zeros that are never freed.
        unsafe { self.inner.atomicmsg(&changed, flags) }
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let changed = AtomicMsg {
            op: self.op(msg.op, elements(msg)),
            ..*msg
        };
        match self.flaw {
            // SAFETY: the caller's promise.
            Flaw::NoAtomics => unsafe { self.only_read(msg, result, flags) },
            Flaw::FetchesNothing => {
                let elsewhere = elsewhere(result, msg.datatype);
                // SAFETY: the caller's promise, and memory that is never freed.
                unsafe { self.inner.fetch_atomicmsg(msg, &elsewhere, &[], flags) }
            }
            Flaw::TwiceAtomics if msg.op != Op::AtomicRead => {
                // SAFETY: the caller's promise.
                unsafe { self.twice(msg)? };
                // SAFETY: the caller's promise.
                unsafe { self.inner.fetch_atomicmsg(msg, result, result_desc, flags) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe {
                self.inner
                    .fetch_atomicmsg(&changed, result, result_desc, flags)
            },
        }
    }

    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        compare_desc: &[Desc],
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let changed = AtomicMsg {
            op: self.op(msg.op, elements(msg)),
            ..*msg
        };
        let elsewhere = elsewhere(result, msg.datatype);
        let result = match self.flaw {
            // SAFETY: the caller's promise.
            Flaw::NoAtomics => return unsafe { self.only_read(msg, result, flags) },
            Flaw::FetchesNothing => &elsewhere,
            _ => result,
        };
        // SAFETY: the caller's promise, and memory that is never freed.
        unsafe {
            self.inner.compare_atomicmsg(
                &changed,
                compare,
                compare_desc,
                result,
                result_desc,
                flags,
            )
        }
    }

    fn inject_atomic(&self, buf: &[u8], target: &atomic::Target) -> Result {
        match self.flaw {
            Flaw::NoAtomics | Flaw::ForgetsInjects => Ok(()),
            Flaw::TwiceAtomics => {
                self.inner.inject_atomic(buf, target)?;
                self.inner.inject_atomic(buf, target)
            }
            _ => {
                let op = self.op(target.op, buf.len() / target.datatype.size());
                self.inner
                    .inject_atomic(buf, &atomic::Target { op, ..*target })
            }
        }
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<atomic::Attr> {
        match self.flaw {
            Flaw::DeniesAtomics => Err(Errno::OpNotSupp),
            _ => self.inner.valid(family, datatype, op),
        }
    }
}

impl FlawedEndpoint {
    /// The operation that is carried out on so many elements in the place of this one.
    fn op(&self, op: Op, count: usize) -> Op {
        match self.flaw {
            Flaw::OtherAtomics => similar(op),
            Flaw::OtherAtomicsOfOne if count == 1 => similar(op),
            _ => op,
        }
    }

    /// Reads in the place of an atomic that returns something.
    unsafe fn only_read(&self, msg: &AtomicMsg<'_>, result: &[IocMut], flags: OpFlags) -> Result {
        let msg = AtomicMsg {
            iov: &[],
            op: Op::AtomicRead,
            ..*msg
        };
        // SAFETY: the caller's promise for `result`.
        unsafe { self.inner.fetch_atomicmsg(&msg, result, &[], flags) }
    }

    /// An atomic once more, by inject.
    unsafe fn twice(&self, msg: &AtomicMsg<'_>) -> Result {
        let [RmaIoc { addr, key, .. }] = *msg.rma_iov else {
            return Ok(());
        };
        for ioc in msg.iov {
            let len = ioc.count * msg.datatype.size();
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(ioc.addr.cast(), len) };
            let (dest, datatype, op) = (msg.dest, msg.datatype, msg.op);
            let target = atomic::Target {
                dest,
                addr,
                key,
                datatype,
                op,
            };
            self.inner.inject_atomic(bytes, &target)?;
        }
        Ok(())
    }
}

fn elsewhere(result: &[IocMut], datatype: Datatype) -> Vec<IocMut> {
    let moved = result.iter().map(|ioc| {
        let room: &'static mut [u128] = vec![0; (ioc.count * datatype.size()).div_ceil(16)].leak();
        IocMut::from_raw(room.as_mut_ptr().cast(), ioc.count)
    });
    moved.collect()
}

/// Of how many elements an atomic is.
fn elements(msg: &AtomicMsg<'_>) -> usize {
    msg.rma_iov.iter().map(|target| target.count).sum()
}

/// An operation that does the same to equal operands, or to zeros, and not otherwise.
pub(in crate::suite::flaw) fn similar(op: Op) -> Op {
    match op {
        Op::Min => Op::Max,
        Op::Max => Op::Min,
        Op::Sum => Op::AtomicWrite,
        Op::Prod => Op::Sum,
        Op::Lor => Op::Land,
        Op::Land => Op::Lor,
        Op::Bor => Op::Bxor,
        Op::Band => Op::Bor,
        Op::Lxor => Op::Lor,
        Op::Bxor => Op::Bor,
        Op::AtomicRead => Op::AtomicRead,
        Op::AtomicWrite => Op::Sum,
        Op::Cswap => Op::CswapNe,
        Op::CswapNe => Op::Cswap,
        Op::CswapLe => Op::CswapLt,
        Op::CswapLt => Op::CswapLe,
        Op::CswapGe => Op::CswapGt,
        Op::CswapGt => Op::CswapGe,
        Op::Mswap => Op::Cswap,
        Op::Diff => Op::Sum,
    }
}
