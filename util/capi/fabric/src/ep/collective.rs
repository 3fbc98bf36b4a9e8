//! Collectives: `struct fi_ops_collective`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::ptr;

use selvedge::atomic::{self, Datatype};
use selvedge::collective::{CollectiveMsg, Op, Query};
use selvedge::{Errno, FiAddr, OpFlags, Result};
use selvedge_abi as abi;
use selvedge_abi::{FidDomain, FidEp, OpsCollective};

use super::{Ep, lists};
use crate::answer::{done, posted};
use crate::domain::Domain;
use crate::given::{given, put};
use crate::object::this;

pub(super) static COLLECTIVE: OpsCollective = OpsCollective {
    size: size_of::<OpsCollective>(),
    barrier: Some(barrier),
    broadcast: Some(broadcast),
    alltoall: Some(alltoall),
    allreduce: Some(allreduce),
    allgather: Some(allgather),
    reduce_scatter: Some(reduce_scatter),
    reduce: Some(reduce),
    scatter: Some(scatter),
    gather: Some(gather),
    msg: Some(msg),
    barrier2: Some(barrier2),
};
pub(super) static CLOSED: OpsCollective = OpsCollective::refusing::<{ libc::EBADF }>();

type Desc = *mut c_void;

/// A collective as C says it.
struct Asked {
    coll: Op,
    buf: *const c_void,
    result: *mut c_void,
    count: usize,
    group: u64,
    root: u64,
    datatype: u32,
    /// Means nothing where nothing is reduced.
    op: u32,
    context: *mut c_void,
}

/// # Safety
/// `ep` is an endpoint; the memory is as the man page has it.
unsafe fn begin(ep: *mut FidEp, asked: &Asked, flags: Result<OpFlags>) -> Result {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    let coll = ep.live()?.collective().ok_or(Errno::NoSys)?;
    let datatype = match asked.coll {
        Op::Barrier => Datatype::Uint8,
        _ => Datatype::from_raw(asked.datatype).ok_or(Errno::OpNotSupp)?,
    };
    let context = lists::context(asked.context);
    let mut msg = CollectiveMsg::new(asked.coll, FiAddr(asked.group), datatype, context);
    if asked.coll.reduces() {
        msg.op = atomic::Op::from_raw(asked.op).ok_or(Errno::OpNotSupp)?;
    }
    (msg.buf, msg.result, msg.count) = (asked.buf, asked.result, asked.count);
    msg.root = FiAddr(asked.root);
    // The calls have flags, and the endpoint's defaults count all the same: it is they that say
    // whether a collective is reported.
    let flags = flags? | ep.tx_flags();
    // SAFETY: passed on from the caller.
    unsafe { coll.collective(&msg, flags) }
}

const NOTHING: Asked = Asked {
    coll: Op::Barrier,
    buf: ptr::null(),
    result: ptr::null_mut(),
    count: 0,
    group: 0,
    root: 0,
    datatype: 0,
    op: 0,
    context: ptr::null_mut(),
};

/// # Safety
/// As fi_barrier(3) has it.
unsafe extern "C" fn barrier(ep: *mut FidEp, group: u64, context: *mut c_void) -> isize {
    // SAFETY: passed on from the caller.
    unsafe { barrier2(ep, group, 0, context) }
}

/// # Safety
/// As fi_barrier2(3) has it.
unsafe extern "C" fn barrier2(
    ep: *mut FidEp,
    group: u64,
    flags: u64,
    context: *mut c_void,
) -> isize {
    let asked = Asked {
        group,
        context,
        ..NOTHING
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { begin(ep, &asked, lists::flags(flags)) })
}

/// # Safety
/// As fi_broadcast(3) has it.
unsafe extern "C" fn broadcast(
    ep: *mut FidEp,
    buf: *mut c_void,
    count: usize,
    _desc: Desc,
    group: u64,
    root: u64,
    datatype: u32,
    flags: u64,
    context: *mut c_void,
) -> isize {
    let asked = Asked {
        coll: Op::Broadcast,
        result: buf,
        count,
        group,
        root,
        datatype,
        context,
        ..NOTHING
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { begin(ep, &asked, lists::flags(flags)) })
}

/// Those with two lists: which, and what they are told besides.
macro_rules! with_lists {
    ($($(#[$doc:meta])+ $name:ident $coll:ident($($more:ident: $kind:ty),*),)+) => {$(
        $(#[$doc])+
        unsafe extern "C" fn $name(
            ep: *mut FidEp,
            buf: *const c_void,
            count: usize,
            _desc: Desc,
            result: *mut c_void,
            _result_desc: Desc,
            group: u64,
            $($more: $kind,)*
            flags: u64,
            context: *mut c_void,
        ) -> isize {
            let mut asked = Asked {
                coll: Op::$coll,
                ..NOTHING
            };
            (asked.buf, asked.result, asked.count) = (buf, result, count);
            (asked.group, asked.context) = (group, context);
            $(asked.$more = $more;)*
            // SAFETY: passed on from the caller.
            posted(unsafe { begin(ep, &asked, lists::flags(flags)) })
        }
    )+};
}

with_lists! {
    /// # Safety
    /// As fi_alltoall(3) has it.
    alltoall Alltoall(datatype: u32),
    /// # Safety
    /// As fi_allreduce(3) has it.
    allreduce Allreduce(datatype: u32, op: u32),
    /// # Safety
    /// As fi_allgather(3) has it.
    allgather Allgather(datatype: u32),
    /// # Safety
    /// As fi_reduce_scatter(3) has it.
    reduce_scatter ReduceScatter(datatype: u32, op: u32),
    /// # Safety
    /// As fi_reduce(3) has it.
    reduce Reduce(root: u64, datatype: u32, op: u32),
    /// # Safety
    /// As fi_scatter(3) has it.
    scatter Scatter(root: u64, datatype: u32),
    /// # Safety
    /// As fi_gather(3) has it.
    gather Gather(root: u64, datatype: u32),
}

/// A collective with its lists in one piece each, which is all that any of them needs. A broadcast
/// has its memory in the first list, as fi_broadcast(3).
///
/// # Safety
/// As `struct fi_msg_collective` and the man page of its collective have it.
unsafe extern "C" fn msg(
    ep: *mut FidEp,
    msg: *const c_void,
    results: *mut abi::Ioc,
    _result_desc: *const *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let post = || {
        // SAFETY: passed on from the caller.
        let given: &abi::MsgCollective = unsafe { given(msg.cast()) }?;
        // SAFETY: passed on from the caller.
        let buf = unsafe { one(given.msg_iov, given.iov_count) }?;
        // SAFETY: passed on from the caller.
        let result = unsafe { one(results, result_count) }?;
        let coll = Op::from_raw(given.coll).ok_or(Errno::OpNotSupp)?;
        let result = match coll {
            Op::Broadcast => buf,
            _ => result,
        };
        let count = if buf.count > 0 {
            buf.count
        } else {
            result.count
        };
        let asked = Asked {
            coll,
            buf: buf.addr,
            result: result.addr,
            count,
            group: given.coll_addr,
            root: given.root_addr,
            datatype: given.datatype,
            op: given.op,
            context: given.context,
        };
        // SAFETY: passed on from the caller.
        unsafe { begin(ep, &asked, lists::flags(flags)) }
    };
    posted(post())
}

/// # Safety
/// `at` is NULL or names so many.
unsafe fn one(at: *const abi::Ioc, count: usize) -> Result<abi::Ioc> {
    // SAFETY: passed on from the caller.
    let pieces = unsafe { crate::given::list(at, count) }?;
    match pieces {
        [] => Ok(abi::Ioc {
            addr: ptr::null_mut(),
            count: 0,
        }),
        [piece] => Ok(*piece),
        _ => Err(Errno::Inval),
    }
}

/// # Safety
/// As fi_query_collective(3) has it.
pub(crate) unsafe extern "C" fn query(
    domain: *mut FidDomain,
    coll: u32,
    attr: *mut c_void,
    flags: u64,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { this(domain) };
    done(|| {
        if flags != 0 {
            return Err(Errno::BadFlags);
        }
        let attr: *mut abi::CollectiveAttr = attr.cast();
        // SAFETY: passed on from the caller.
        let asked = *unsafe { given(attr.cast_const()) }?;
        let coll = Op::from_raw(coll).ok_or(Errno::OpNotSupp)?;
        let number = |raw: u32, is_known: bool| match is_known || raw == NONE {
            true => Ok(()),
            false => Err(Errno::OpNotSupp),
        };
        let datatype = Datatype::from_raw(asked.datatype);
        number(asked.datatype, datatype.is_some())?;
        let op = atomic::Op::from_raw(asked.op);
        number(asked.op, op.is_some())?;
        let can = domain.own.query_collective(&Query { coll, datatype, op })?;
        let answer = abi::CollectiveAttr {
            datatype_attr: abi::AtomicAttr {
                count: can.count,
                size: can.size,
            },
            max_members: can.max_members,
            mode: 0,
            ..asked
        };
        // SAFETY: passed on from the caller.
        unsafe { put(attr, answer) }
    })
}

/// `FI_NOOP`, `FI_VOID`.
const NONE: u32 = 256;
