//! Collectives: `struct fi_ops_collective`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::ptr;

use selvedge::atomic::{self, Datatype};
use selvedge::collective::{CollectiveMsg, Op, Query};
use selvedge::{Domain, Errno, FiAddr, Result};
use selvedge_abi::{self as abi, OpsCollective};

use super::lists;
use crate::context;
use crate::ep::endpoint::Ep;
use crate::object::Table;
use crate::pointer::{array, put, required};
use crate::status::post_status;

pub(crate) static COLLECTIVE: Table<OpsCollective, Ep> =
    with_results(Table::<OpsCollective, Ep>::empty())
        .barrier(|ep, group, context| {
            let request = request(Op::Barrier, NO_MEMORY, (group, 0), (0, 0), context);
            // SAFETY: the C caller follows fi_barrier(3).
            unsafe { post(ep, &request, 0) }
        })
        .barrier2(|ep, group, flags, context| {
            let request = request(Op::Barrier, NO_MEMORY, (group, 0), (0, 0), context);
            // SAFETY: the C caller follows fi_barrier2(3).
            unsafe { post(ep, &request, flags) }
        })
        .broadcast(|ep, buf, count, _, group, root, datatype, flags, context| {
            let memory = (ptr::null(), buf, count);
            let request = request(Op::Broadcast, memory, (group, root), (datatype, 0), context);
            // SAFETY: the C caller follows fi_broadcast(3).
            unsafe { post(ep, &request, flags) }
        })
        .msg(|ep, msg, results, _, result_count, flags| {
            let begin = || {
                // SAFETY: the C caller follows `struct fi_msg_collective` and the page of its
                // collective.
                let request = unsafe { read(msg.cast(), results, result_count) }?;
                // SAFETY: as above.
                unsafe { begin(ep, &request, flags) }
            };
            post_status(begin())
        });

/// Adds collectives from a buffer to a result. The description has the function, the collective,
/// the arguments behind the group, and the values of root, datatype and operation.
macro_rules! collectives {
    ($table:expr; $(
        $function:ident = $coll:ident($($arg:ident),*) => ($root:expr, $datatype:expr, $op:expr);
    )*) => {
        $table$(.$function(|ep, buf, count, _, result, _, group, $($arg,)* flags, context| {
            let (memory, group) = ((buf, result, count), (group, $root));
            let request = request(Op::$coll, memory, group, ($datatype, $op), context);
            // SAFETY: the C caller follows the page of the function.
            unsafe { post(ep, &request, flags) }
        }))*
    };
}

const fn with_results(table: Table<OpsCollective, Ep>) -> Table<OpsCollective, Ep> {
    collectives! {
        table;
        alltoall = Alltoall(datatype) => (0, datatype, 0);
        allreduce = Allreduce(datatype, op) => (0, datatype, op);
        allgather = Allgather(datatype) => (0, datatype, 0);
        reduce_scatter = ReduceScatter(datatype, op) => (0, datatype, op);
        reduce = Reduce(root, datatype, op) => (root, datatype, op);
        scatter = Scatter(root, datatype) => (root, datatype, 0);
        gather = Gather(root, datatype) => (root, datatype, 0);
    }
}

/// The arguments of a collective of C.
struct Collective {
    coll: Op,
    buf: *const c_void,
    result: *mut c_void,
    count: usize,
    group: u64,
    root: u64,
    datatype: u32,
    /// The reduction; ignored by collectives that do not reduce.
    op: u32,
    context: *mut c_void,
}

/// The source buffer, the result buffer, and the count of elements of either.
type Memory = (*const c_void, *mut c_void, usize);

const NO_MEMORY: Memory = (ptr::null(), ptr::null_mut(), 0);

/// Collects the arguments of a collective of a group. Root, datatype and operation are 0 where the
/// collective has none.
fn request(
    coll: Op,
    (buf, result, count): Memory,
    (group, root): (u64, u64),
    (datatype, op): (u32, u32),
    context: *mut c_void,
) -> Collective {
    Collective {
        coll,
        buf,
        result,
        count,
        group,
        root,
        datatype,
        op,
        context,
    }
}

/// # Safety
/// As [`begin`].
unsafe fn post(ep: &Ep, request: &Collective, flags: u64) -> isize {
    // SAFETY: passed on from the caller.
    post_status(unsafe { begin(ep, request, flags) })
}

/// # Safety
/// The buffers are valid as fi_collective(3) requires.
unsafe fn begin(ep: &Ep, request: &Collective, flags: u64) -> Result {
    let coll = ep.live()?.collective().ok_or(Errno::NoSys)?;
    let datatype = match request.coll {
        Op::Barrier => Datatype::Uint8,
        _ => Datatype::from_raw(request.datatype).ok_or(Errno::OpNotSupp)?,
    };
    let context = context::from_c(request.context);
    let mut msg = CollectiveMsg::new(request.coll, FiAddr(request.group), datatype, context);
    if request.coll.reduces() {
        msg.op = atomic::Op::from_raw(request.op).ok_or(Errno::OpNotSupp)?;
    }
    (msg.buf, msg.result, msg.count) = (request.buf, request.result, request.count);
    msg.root = FiAddr(request.root);
    // The endpoint's default flags apply in addition to the flags of the call, because the defaults
    // decide whether a collective is reported.
    let flags = lists::flags(flags)? | ep.tx_flags();
    // SAFETY: passed on from the caller.
    unsafe { coll.collective(&msg, flags) }
}

/// Reads a collective whose lists have at most one segment each; no collective needs more. A
/// broadcast has its buffer in the first list, as in fi_broadcast(3).
///
/// # Errors
/// [`Errno::Inval`] for NULL and for lists of several segments; [`Errno::OpNotSupp`] for an unknown
/// collective.
///
/// # Safety
/// `msg` is NULL or points to a valid structure; `results` points to `result_count` segments.
unsafe fn read(
    msg: *const abi::MsgCollective,
    results: *const abi::Ioc,
    result_count: usize,
) -> Result<Collective> {
    // SAFETY: passed on from the caller.
    let msg_c = unsafe { required(msg) }?;
    // SAFETY: passed on from the caller.
    let buf = unsafe { single_segment(msg_c.msg_iov, msg_c.iov_count) }?;
    // SAFETY: passed on from the caller.
    let result = unsafe { single_segment(results, result_count) }?;
    let coll = Op::from_raw(msg_c.coll).ok_or(Errno::OpNotSupp)?;
    let result = match coll {
        Op::Broadcast => buf,
        _ => result,
    };
    let count = if buf.count > 0 {
        buf.count
    } else {
        result.count
    };
    let (memory, group) = ((buf.addr.cast_const(), result.addr, count), msg_c.coll_addr);
    let (root, types) = (msg_c.root_addr, (msg_c.datatype, msg_c.op));
    Ok(request(coll, memory, (group, root), types, msg_c.context))
}

/// # Safety
/// `first` is NULL or points to `count` segments.
unsafe fn single_segment(first: *const abi::Ioc, count: usize) -> Result<abi::Ioc> {
    // SAFETY: passed on from the caller.
    let segments = unsafe { array(first, count) }?;
    match segments {
        [] => Ok(abi::Ioc {
            addr: ptr::null_mut(),
            count: 0,
        }),
        [segment] => Ok(*segment),
        _ => Err(Errno::Inval),
    }
}

/// The limits of a domain for a collective.
///
/// # Errors
/// [`Errno::OpNotSupp`] for unknown numbers; the errors of the provider.
///
/// # Safety
/// The caller follows fi_query_collective(3).
pub(crate) unsafe fn query(
    domain: &dyn Domain,
    coll: u32,
    attr: *mut abi::CollectiveAttr,
    flags: u64,
) -> Result {
    if flags != 0 {
        return Err(Errno::BadFlags);
    }
    // SAFETY: passed on from the caller.
    let request = *unsafe { required(attr.cast_const()) }?;
    let coll = Op::from_raw(coll).ok_or(Errno::OpNotSupp)?;
    let check_number = |raw: u32, is_valid: bool| {
        if is_valid || raw == VOID {
            Ok(())
        } else {
            Err(Errno::OpNotSupp)
        }
    };
    let datatype = Datatype::from_raw(request.datatype);
    check_number(request.datatype, datatype.is_some())?;
    let op = atomic::Op::from_raw(request.op);
    check_number(request.op, op.is_some())?;
    let limits = domain.query_collective(&Query { coll, datatype, op })?;
    let result = abi::CollectiveAttr {
        datatype_attr: abi::AtomicAttr {
            count: limits.count,
            size: limits.size,
        },
        max_members: limits.max_members,
        mode: 0,
        ..request
    };
    // SAFETY: passed on from the caller.
    unsafe { put(attr, result) }
}

/// `FI_NOOP`, `FI_VOID`.
const VOID: u32 = 256;
