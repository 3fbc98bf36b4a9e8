//! Atomics: `struct fi_ops_atomic`.
//!
//! Each family (base, fetch, compare) has the same forms; fetch and compare atomics have more
//! lists. Every form becomes an [`Atomic`].

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use selvedge::atomic::{self, AtomicMsg, Datatype, Family, Target};
use selvedge::op::{Compared, Fetched};
use selvedge::{Endpoint, Errno, FiAddr, Op, OpFlags, Result};
use selvedge_abi::{Ioc, MsgAtomic, OpsAtomic, RmaIoc};

use super::lists;
use super::message::{Buffers, Operation, Post, buffer_list, ioc, one_buffer};
use crate::context;
use crate::ep::endpoint::Ep;
use crate::object::Table;
use crate::pointer::{put, required};
use crate::status::{guarded_unit, post_status};

pub(crate) static ATOMIC: Table<OpsAtomic, Ep> =
    with_compares(with_fetches(with_base(Table::<OpsAtomic, Ep>::empty()))).inject(
        |ep, buf, count, dest, addr, key, datatype, op| {
            let inject = || {
                let target = target((dest, addr, key, datatype, op))?;
                let len = count.checked_mul(target.datatype.size());
                // SAFETY: the C caller follows fi_inject_atomic(3).
                let bytes = unsafe { lists::bytes(buf, len.ok_or(Errno::MsgSize)?) }?;
                ep.live()?.inject_atomic(bytes, &target)
            };
            post_status(inject())
        },
    );

/// Adds the functions of a family to a table: the forms with a buffer, with a list and with a
/// structure, and the query. The description has the function that makes the [`Lists`] of the
/// family, and for each list the names of its three arguments.
macro_rules! family {
    (
        $table:expr, $family:expr,
        $lists:ident($(($first:ident, $desc:ident, $count:ident)),*);
        $one:ident, $list:ident, $full:ident, $valid:ident
    ) => {
        $table
            .$one(
                |ep, buf, count, desc, $($first, $desc,)* dest, addr, key, datatype, op, context| {
                    let operands = ioc(buf, count);
                    $(let $first = ioc($first, count);)*
                    let lists = $lists($(one_buffer(&$first, &$desc)),*);
                    let operands = one_buffer(&operands, &desc);
                    let target_args = (dest, addr, key, datatype, op);
                    // SAFETY: the C caller follows the page of the function, here and below.
                    post_status(unsafe {
                        post_short_form(ep, &operands, lists, target_args, context)
                    })
                },
            )
            .$list(
                |ep, iov, desc, count, $($first, $desc, $count,)* dest, addr, key, datatype, op,
                 context| {
                    let lists = $lists($(buffer_list($first, $desc, $count)),*);
                    let operands = buffer_list(iov, desc, count);
                    let target_args = (dest, addr, key, datatype, op);
                    // SAFETY: as above.
                    post_status(unsafe {
                        post_short_form(ep, &operands, lists, target_args, context)
                    })
                },
            )
            .$full(|ep, msg, $($first, $desc, $count,)* flags| {
                let lists = $lists($(buffer_list($first, $desc, $count)),*);
                // SAFETY: as above.
                post_status(unsafe { post_full_form(ep, msg, lists, flags) })
            })
            // SAFETY: as above.
            .$valid(|ep, datatype, op, out| unsafe { write_limit(ep, $family, datatype, op, out) })
    };
}

const fn with_base(table: Table<OpsAtomic, Ep>) -> Table<OpsAtomic, Ep> {
    family! {
        table, Family::Base, base_lists();
        write, writev, writemsg, writevalid
    }
}

const fn with_fetches(table: Table<OpsAtomic, Ep>) -> Table<OpsAtomic, Ep> {
    family! {
        table, Family::Fetch, fetch_lists((result, result_desc, result_count));
        readwrite, readwritev, readwritemsg, readwritevalid
    }
}

const fn with_compares(table: Table<OpsAtomic, Ep>) -> Table<OpsAtomic, Ep> {
    family! {
        table, Family::Compare, compare_lists(
            (comparands, comparand_desc, comparand_count), (result, result_desc, result_count)
        );
        compwrite, compwritev, compwritemsg, compwritevalid
    }
}

/// The lists that an atomic has in addition to its operands.
#[derive(Clone, Copy)]
pub(crate) struct Lists<'a> {
    compare: Option<Buffers<'a, Ioc>>,
    result: Option<Buffers<'a, Ioc>>,
}

/// The lists of the base family, which has only operands.
pub(crate) const fn base_lists() -> Lists<'static> {
    Lists {
        compare: None,
        result: None,
    }
}

/// The lists of a fetch atomic.
pub(crate) const fn fetch_lists(result: Buffers<'_, Ioc>) -> Lists<'_> {
    Lists {
        compare: None,
        result: Some(result),
    }
}

/// The lists of a compare atomic.
pub(crate) const fn compare_lists<'a>(
    comparands: Buffers<'a, Ioc>,
    result: Buffers<'a, Ioc>,
) -> Lists<'a> {
    Lists {
        compare: Some(comparands),
        result: Some(result),
    }
}

/// The datatype and operation of two numbers.
///
/// # Errors
/// [`Errno::OpNotSupp`] for unknown numbers.
pub(crate) fn datatype_and_op(datatype: u32, op: u32) -> Result<(Datatype, atomic::Op)> {
    let datatype = Datatype::from_raw(datatype).ok_or(Errno::OpNotSupp)?;
    Ok((datatype, atomic::Op::from_raw(op).ok_or(Errno::OpNotSupp)?))
}

/// The peer, the address and key of its memory, the datatype and the operation.
type TargetArgs = (u64, u64, u64, u32, u32);

fn target((dest, addr, key, datatype, op): TargetArgs) -> Result<Target> {
    let (datatype, op) = datatype_and_op(datatype, op)?;
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
unsafe fn post_short_form(
    ep: &Ep,
    operands: &Buffers<'_, Ioc>,
    lists: Lists<'_>,
    (dest, addr, key, datatype, op): TargetArgs,
    context: *mut c_void,
) -> Result {
    // SAFETY: passed on from the caller.
    let segments: &[atomic::Ioc] = unsafe { lists::bounded(operands.iov, operands.count) }?;
    let count = lists::total(segments.iter().map(|segment| segment.count))?;
    let remote = RmaIoc { addr, count, key };
    let msg_c = MsgAtomic {
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
    let atomic = unsafe { Atomic::read(&msg_c, lists) }?;
    // SAFETY: passed on from the caller.
    unsafe { ep.post(&atomic, ep.tx_flags()) }
}

/// Posts an atomic of a full form.
///
/// # Safety
/// As [`post_short_form`], for the structure at `msg`.
unsafe fn post_full_form(ep: &Ep, msg: *const MsgAtomic, lists: Lists<'_>, flags: u64) -> Result {
    // SAFETY: passed on from the caller.
    let msg_c = unsafe { required(msg) }?;
    // SAFETY: passed on from the caller.
    let atomic = unsafe { Atomic::read(msg_c, lists) }?;
    // SAFETY: passed on from the caller.
    unsafe { ep.post(&atomic, lists::flags(flags)?) }
}

/// An atomic of any family.
pub(crate) struct Atomic<'a> {
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
    pub(crate) unsafe fn read(msg_c: &'a MsgAtomic, lists: Lists<'a>) -> Result<Self> {
        let (datatype, op) = datatype_and_op(msg_c.datatype, msg_c.op)?;
        let msg = AtomicMsg {
            // SAFETY: passed on from the caller, here and below.
            iov: unsafe { lists::bounded(msg_c.msg_iov, msg_c.iov_count) }?,
            // SAFETY: as above.
            desc: unsafe { lists::descs(msg_c.desc, msg_c.iov_count) }?,
            dest: FiAddr(msg_c.addr),
            // SAFETY: as above.
            rma_iov: unsafe { lists::bounded(msg_c.rma_iov, msg_c.rma_iov_count) }?,
            datatype,
            op,
            context: context::from_c(msg_c.context),
            data: msg_c.data,
        };
        if op != atomic::Op::AtomicRead {
            lists::check_segments(msg.iov)?;
        }
        let mut atomic = Self {
            msg,
            compare: None,
            result: None,
        };
        if let Some(comparands) = lists.compare {
            // SAFETY: as above.
            let iov = lists::check_segments(unsafe {
                lists::bounded(comparands.iov, comparands.count)
            }?)?;
            // SAFETY: as above.
            let desc = unsafe { lists::descs(comparands.desc, comparands.count) }?;
            atomic.compare = Some(Compared { iov, desc });
        }
        if let Some(result) = lists.result {
            // SAFETY: as above.
            let iov = lists::check_segments(unsafe { lists::bounded(result.iov, result.count) }?)?;
            // SAFETY: as above.
            let desc = unsafe { lists::descs(result.desc, result.count) }?;
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
            (Some(comparands), Some(result)) => {
                let (iov, desc) = (comparands.iov, comparands.desc);
                // SAFETY: passed on from the caller, here and below.
                unsafe { ep.compare_atomicmsg(msg, iov, desc, result.iov, result.desc, flags) }
            }
            // SAFETY: as above.
            (_, Some(result)) => unsafe { ep.fetch_atomicmsg(msg, result.iov, result.desc, flags) },
            // SAFETY: as above.
            _ => unsafe { ep.atomicmsg(msg, flags) },
        }
    }

    fn op(&self) -> Op<'a> {
        match (self.compare, self.result) {
            (Some(comparands), Some(result)) => Op::CompareAtomic(self.msg, comparands, result),
            (_, Some(result)) => Op::FetchAtomic(self.msg, result),
            _ => Op::Atomic(self.msg),
        }
    }
}

/// # Safety
/// `out` is NULL or may be written.
unsafe fn write_limit(ep: &Ep, family: Family, datatype: u32, op: u32, out: *mut usize) -> c_int {
    guarded_unit(|| {
        let (datatype, op) = datatype_and_op(datatype, op)?;
        let limit = match ep.live() {
            Ok(live) => live.valid(family, datatype, op)?.count,
            Err(_) => ep.shared.domain.query_atomic(family, datatype, op)?.count,
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, limit) }
    })
}
