//! Atomics: `struct fi_ops_atomic`.
//!
//! Each family (base, fetch, compare) has the same forms, with more lists in the later ones. All
//! become an [`Atomic`].

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use selvedge::atomic::{self, AtomicMsg, Datatype, Family, Target};
use selvedge::op::{Compared, Fetched};
use selvedge::{Endpoint, Errno, FiAddr, Op, OpFlags, Result};
use selvedge_abi::{Ioc, MsgAtomic, OpsAtomic, RmaIoc};

use super::post::{Buffers, Operation, Post, ioc, list, one};
use super::{Ep, lists};
use crate::object::Table;
use crate::pointer::{put, required};
use crate::status::{guarded_unit, post_status};

pub(super) static ATOMIC: Table<OpsAtomic, Ep> = Table::<OpsAtomic, Ep>::empty()
    .write(
        |ep, buf, count, desc, dest, addr, key, datatype, op, context| {
            let to = (dest, addr, key, datatype, op);
            // SAFETY: the C caller follows fi_atomic(3).
            post_status(unsafe { short(ep, &one(&ioc(buf, count), &desc), BASE, to, context) })
        },
    )
    .writev(
        |ep, iov, desc, count, dest, addr, key, datatype, op, context| {
            let to = (dest, addr, key, datatype, op);
            // SAFETY: the C caller follows fi_atomicv(3).
            post_status(unsafe { short(ep, &list(iov, desc, count), BASE, to, context) })
        },
    )
    // SAFETY: the C caller follows fi_atomicmsg(3).
    .writemsg(|ep, msg, flags| post_status(unsafe { full(ep, msg, BASE, flags) }))
    .inject(|ep, buf, count, dest, addr, key, datatype, op| {
        let inject = || {
            let target = target((dest, addr, key, datatype, op))?;
            let len = count.checked_mul(target.datatype.size());
            // SAFETY: the C caller follows fi_inject_atomic(3).
            let bytes = unsafe { lists::bytes(buf, len.ok_or(Errno::MsgSize)?) }?;
            ep.live()?.inject_atomic(bytes, &target)
        };
        post_status(inject())
    })
    .readwrite(
        |ep, buf, count, desc, result, to_desc, dest, addr, key, datatype, op, context| {
            let to = (dest, addr, key, datatype, op);
            let result = ioc(result, count);
            let lists = fetch(one(&result, &to_desc));
            // SAFETY: the C caller follows fi_fetch_atomic(3).
            post_status(unsafe { short(ep, &one(&ioc(buf, count), &desc), lists, to, context) })
        },
    )
    .readwritev(
        |ep,
         iov,
         desc,
         count,
         result,
         to_desc,
         to_count,
         dest,
         addr,
         key,
         datatype,
         op,
         context| {
            let to = (dest, addr, key, datatype, op);
            let lists = fetch(list(result, to_desc, to_count));
            // SAFETY: the C caller follows fi_fetch_atomicv(3).
            post_status(unsafe { short(ep, &list(iov, desc, count), lists, to, context) })
        },
    )
    .readwritemsg(|ep, msg, result, to_desc, to_count, flags| {
        let lists = fetch(list(result, to_desc, to_count));
        // SAFETY: the C caller follows fi_fetch_atomicmsg(3).
        post_status(unsafe { full(ep, msg, lists, flags) })
    })
    .compwrite(
        |ep,
         buf,
         count,
         desc,
         with,
         with_desc,
         result,
         to_desc,
         dest,
         addr,
         key,
         datatype,
         op,
         context| {
            let to = (dest, addr, key, datatype, op);
            let (with, result) = (ioc(with, count), ioc(result, count));
            let lists = compare(one(&with, &with_desc), one(&result, &to_desc));
            // SAFETY: the C caller follows fi_compare_atomic(3).
            post_status(unsafe { short(ep, &one(&ioc(buf, count), &desc), lists, to, context) })
        },
    )
    .compwritev(
        |ep,
         iov,
         desc,
         count,
         with,
         with_desc,
         with_count,
         result,
         to_desc,
         to_count,
         dest,
         addr,
         key,
         datatype,
         op,
         context| {
            let to = (dest, addr, key, datatype, op);
            let lists = compare(
                list(with, with_desc, with_count),
                list(result, to_desc, to_count),
            );
            // SAFETY: the C caller follows fi_compare_atomicv(3).
            post_status(unsafe { short(ep, &list(iov, desc, count), lists, to, context) })
        },
    )
    .compwritemsg(
        |ep, msg, with, with_desc, with_count, result, to_desc, to_count, flags| {
            let lists = compare(
                list(with, with_desc, with_count),
                list(result, to_desc, to_count),
            );
            // SAFETY: the C caller follows fi_compare_atomicmsg(3).
            post_status(unsafe { full(ep, msg, lists, flags) })
        },
    )
    // SAFETY: the C caller follows fi_atomicvalid(3).
    .writevalid(|ep, datatype, op, out| unsafe { valid(ep, Family::Base, datatype, op, out) })
    // SAFETY: the C caller follows fi_fetch_atomicvalid(3).
    .readwritevalid(|ep, datatype, op, out| unsafe { valid(ep, Family::Fetch, datatype, op, out) })
    .compwritevalid(|ep, datatype, op, out| {
        // SAFETY: the C caller follows fi_compare_atomicvalid(3).
        unsafe { valid(ep, Family::Compare, datatype, op, out) }
    });

/// The lists of the fetch and compare families, beside the operands.
#[derive(Clone, Copy)]
pub(super) struct Lists<'a> {
    compare: Option<Buffers<'a, Ioc>>,
    result: Option<Buffers<'a, Ioc>>,
}

/// The base family has no further lists.
pub(super) const BASE: Lists<'static> = Lists {
    compare: None,
    result: None,
};

/// The lists of a fetch atomic.
pub(super) const fn fetch(result: Buffers<'_, Ioc>) -> Lists<'_> {
    Lists {
        compare: None,
        result: Some(result),
    }
}

/// The lists of a compare atomic.
pub(super) const fn compare<'a>(with: Buffers<'a, Ioc>, result: Buffers<'a, Ioc>) -> Lists<'a> {
    Lists {
        compare: Some(with),
        result: Some(result),
    }
}

/// The datatype and operation of two numbers.
///
/// # Errors
/// [`Errno::OpNotSupp`] for numbers without a meaning.
pub(crate) fn numbers(datatype: u32, op: u32) -> Result<(Datatype, atomic::Op)> {
    let datatype = Datatype::from_raw(datatype).ok_or(Errno::OpNotSupp)?;
    Ok((datatype, atomic::Op::from_raw(op).ok_or(Errno::OpNotSupp)?))
}

/// The peer, the address and key of its memory, the datatype and the operation.
type To = (u64, u64, u64, u32, u32);

fn target((dest, addr, key, datatype, op): To) -> Result<Target> {
    let (datatype, op) = numbers(datatype, op)?;
    Ok(Target {
        dest: FiAddr(dest),
        addr,
        key,
        datatype,
        op,
    })
}

/// Posts an atomic of a short form.
///
/// # Safety
/// The caller follows fi_atomic(3): the memory of the lists stays valid until the atomic is
/// complete.
#[inline(always)]
unsafe fn short(
    ep: &Ep,
    operands: &Buffers<'_, Ioc>,
    lists: Lists<'_>,
    (dest, addr, key, datatype, op): To,
    context: *mut c_void,
) -> Result {
    // SAFETY: passed on from the caller.
    let segments: &[atomic::Ioc] = unsafe { lists::bounded(operands.iov, operands.count) }?;
    let count = lists::total(segments.iter().map(|segment| segment.count))?;
    let remote = RmaIoc { addr, count, key };
    let given = MsgAtomic {
        msg_iov: operands.iov,
        desc: operands.desc,
        iov_count: operands.count,
        addr: dest,
        rma_iov: &remote,
        rma_iov_count: 1,
        datatype,
        op,
        context,
        data: 0,
    };
    // SAFETY: passed on from the caller.
    let atomic = unsafe { Atomic::read(&given, lists) }?;
    // SAFETY: passed on from the caller.
    unsafe { ep.post(&atomic, ep.tx_flags()) }
}

/// Posts an atomic of a full form.
///
/// # Safety
/// As [`short`], for the structure that C has filled in.
unsafe fn full(ep: &Ep, msg: *const MsgAtomic, lists: Lists<'_>, flags: u64) -> Result {
    // SAFETY: passed on from the caller.
    let given = unsafe { required(msg) }?;
    // SAFETY: passed on from the caller.
    let atomic = unsafe { Atomic::read(given, lists) }?;
    // SAFETY: passed on from the caller.
    unsafe { ep.post(&atomic, lists::flags(flags)?) }
}

/// An atomic of any family.
pub(super) struct Atomic<'a> {
    msg: AtomicMsg<'a>,
    compare: Option<Compared<'a>>,
    result: Option<Fetched<'a>>,
}

impl<'a> Atomic<'a> {
    /// Reads a structure of C and the lists beside it.
    ///
    /// # Errors
    /// [`Errno::Inval`] for elements at NULL, except for the operands of an atomic read, which are
    /// ignored; [`Errno::OpNotSupp`] for numbers without a meaning.
    ///
    /// # Safety
    /// The structure and the lists are valid for `'a`, with the counts that they state.
    #[inline(always)]
    pub(super) unsafe fn read(given: &'a MsgAtomic, lists: Lists<'a>) -> Result<Self> {
        let (datatype, op) = numbers(given.datatype, given.op)?;
        let msg = AtomicMsg {
            // SAFETY: passed on from the caller, here and below.
            iov: unsafe { lists::bounded(given.msg_iov, given.iov_count) }?,
            // SAFETY: as above.
            desc: unsafe { lists::descs(given.desc, given.iov_count) }?,
            dest: FiAddr(given.addr),
            // SAFETY: as above.
            rma_iov: unsafe { lists::bounded(given.rma_iov, given.rma_iov_count) }?,
            datatype,
            op,
            context: lists::context(given.context),
            data: given.data,
        };
        if op != atomic::Op::AtomicRead {
            lists::checked(msg.iov)?;
        }
        let mut atomic = Self {
            msg,
            compare: None,
            result: None,
        };
        if let Some(with) = lists.compare {
            // SAFETY: as above.
            let iov = lists::checked(unsafe { lists::bounded(with.iov, with.count) }?)?;
            // SAFETY: as above.
            let desc = unsafe { lists::descs(with.desc, with.count) }?;
            atomic.compare = Some(Compared { iov, desc });
        }
        if let Some(to) = lists.result {
            // SAFETY: as above.
            let iov = lists::checked(unsafe { lists::bounded(to.iov, to.count) }?)?;
            // SAFETY: as above.
            let desc = unsafe { lists::descs(to.desc, to.count) }?;
            atomic.result = Some(Fetched { iov, desc });
        }
        Ok(atomic)
    }
}

impl<'a> Operation<'a> for Atomic<'a> {
    #[inline(always)]
    unsafe fn post(&self, ep: &dyn Endpoint, flags: OpFlags) -> Result {
        let msg = &self.msg;
        match (&self.compare, &self.result) {
            (Some(with), Some(to)) => {
                let (iov, desc) = (with.iov, with.desc);
                // SAFETY: passed on from the caller, here and below.
                unsafe { ep.compare_atomicmsg(msg, iov, desc, to.iov, to.desc, flags) }
            }
            // SAFETY: as above.
            (_, Some(to)) => unsafe { ep.fetch_atomicmsg(msg, to.iov, to.desc, flags) },
            // SAFETY: as above.
            _ => unsafe { ep.atomicmsg(msg, flags) },
        }
    }

    fn op(&self) -> Op<'a> {
        match (self.compare, self.result) {
            (Some(with), Some(to)) => Op::CompareAtomic(self.msg, with, to),
            (_, Some(to)) => Op::FetchAtomic(self.msg, to),
            _ => Op::Atomic(self.msg),
        }
    }
}

/// # Safety
/// `out` is NULL or may be written.
unsafe fn valid(ep: &Ep, family: Family, datatype: u32, op: u32, out: *mut usize) -> c_int {
    guarded_unit(|| {
        let (datatype, op) = numbers(datatype, op)?;
        let limit = match ep.live() {
            Ok(live) => live.valid(family, datatype, op)?.count,
            Err(_) => ep.shared.domain.query_atomic(family, datatype, op)?.count,
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, limit) }
    })
}
