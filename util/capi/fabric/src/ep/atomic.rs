//! Atomics: `struct fi_ops_atomic`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use selvedge::atomic::{self, AtomicMsg, Datatype, Family, Ioc, IocMut, RmaIoc, Target};
use selvedge::op::{Compared, Fetched};
use selvedge::{Context, Desc, Errno, FiAddr, Op, OpFlags, Result};
use selvedge_abi as abi;
use selvedge_abi::{FidEp, MsgAtomic, OpsAtomic};

use super::later::or_later;
use super::{Ep, lists};
use crate::answer::{done, posted};
use crate::given::{given, put};
use crate::object::this;

pub(super) static ATOMIC: OpsAtomic = OpsAtomic {
    size: size_of::<OpsAtomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};
pub(super) static CLOSED: OpsAtomic = OpsAtomic::refusing::<{ libc::EBADF }>();

/// What the short forms say of the target.
struct Aim {
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
}

/// # Errors
/// [`Errno::OpNotSupp`] for numbers that mean nothing.
fn number(datatype: u32, op: u32) -> Result<(Datatype, atomic::Op)> {
    let datatype = Datatype::from_raw(datatype).ok_or(Errno::OpNotSupp)?;
    Ok((datatype, atomic::Op::from_raw(op).ok_or(Errno::OpNotSupp)?))
}

impl Aim {
    fn target(&self) -> Result<Target> {
        let (datatype, op) = number(self.datatype, self.op)?;
        Ok(Target {
            dest: FiAddr(self.peer),
            addr: self.addr,
            key: self.key,
            datatype,
            op,
        })
    }
}

/// Elements and their descriptors.
struct Read<'a> {
    iov: &'a [Ioc],
    desc: &'a [Desc],
}

/// Room for elements, likewise.
struct Written<'a> {
    iov: &'a [IocMut],
    desc: &'a [Desc],
}

impl<'a> Read<'a> {
    /// # Safety
    /// Both are NULL or name as many.
    unsafe fn of(iov: *const abi::Ioc, desc: *const *mut c_void, count: usize) -> Result<Self> {
        Ok(Self {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::ioc(iov, count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(desc, count) }?,
        })
    }

    fn count(&self) -> Result<usize> {
        let mut counts = self.iov.iter().map(|piece| piece.count);
        let sum = counts.try_fold(0_usize, |sum, count| sum.checked_add(count));
        sum.ok_or(Errno::Inval)
    }
}

impl<'a> Written<'a> {
    /// # Safety
    /// Both are NULL or name as many.
    unsafe fn of(iov: *const abi::Ioc, desc: *const *mut c_void, count: usize) -> Result<Self> {
        Ok(Self {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::ioc_mut(iov, count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(desc, count) }?,
        })
    }
}

/// Which of the three families, with its operands.
enum Kind<'a> {
    Base,
    Fetch(Written<'a>),
    Compare(Read<'a>, Written<'a>),
}

impl Kind<'_> {
    /// Checks that all elements are somewhere; the man page gives a read operands that mean nothing.
    fn named(&self, msg: &AtomicMsg<'_>) -> Result {
        if msg.op != atomic::Op::AtomicRead {
            lists::named(msg.iov)?;
        }
        match self {
            Self::Base => Ok(()),
            Self::Fetch(to) => lists::named(to.iov),
            Self::Compare(with, to) => lists::named(with.iov).and_then(|()| lists::named(to.iov)),
        }
    }

    /// The whole of it as a value.
    fn op<'a>(&'a self, msg: &AtomicMsg<'a>) -> Op<'a> {
        let fetched = |to: &'a Written<'_>| Fetched {
            iov: to.iov,
            desc: to.desc,
        };
        match self {
            Self::Base => Op::Atomic(*msg),
            Self::Fetch(to) => Op::FetchAtomic(*msg, fetched(to)),
            Self::Compare(with, to) => {
                let (iov, desc) = (with.iov, with.desc);
                Op::CompareAtomic(*msg, Compared { iov, desc }, fetched(to))
            }
        }
    }
}

/// # Safety
/// As fi_atomicmsg(3) and its kin have it: what the lists name stays until it is complete.
unsafe fn post_msg(
    ep: *mut FidEp,
    msg: &AtomicMsg<'_>,
    kind: &Kind<'_>,
    flags: Option<OpFlags>,
) -> Result {
    kind.named(msg)?;
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    let flags = flags.unwrap_or_else(|| ep.tx_flags());
    let live = ep.live()?;
    let answer = match kind {
        // SAFETY: passed on from the caller.
        Kind::Base => unsafe { live.atomicmsg(msg, flags) },
        // SAFETY: passed on from the caller.
        Kind::Fetch(result) => unsafe { live.fetch_atomicmsg(msg, result.iov, result.desc, flags) },
        // SAFETY: passed on from the caller.
        Kind::Compare(compare, result) => unsafe {
            let (iov, desc) = (compare.iov, compare.desc);
            live.compare_atomicmsg(msg, iov, desc, result.iov, result.desc, flags)
        },
    };
    // SAFETY: passed on from the caller.
    unsafe { or_later(ep, answer, flags, || kind.op(msg)) }
}

/// # Safety
/// As [`post_msg`].
unsafe fn post(
    ep: *mut FidEp,
    operands: &Read<'_>,
    kind: &Kind<'_>,
    aim: &Aim,
    context: Context,
) -> Result {
    let target = aim.target()?;
    let places = [RmaIoc {
        addr: aim.addr,
        count: operands.count()?,
        key: aim.key,
    }];
    let msg = AtomicMsg {
        iov: operands.iov,
        desc: operands.desc,
        dest: target.dest,
        rma_iov: &places,
        datatype: target.datatype,
        op: target.op,
        context,
        data: 0,
    };
    // SAFETY: passed on from the caller.
    unsafe { post_msg(ep, &msg, kind, None) }
}

/// # Safety
/// As [`post_msg`], for what C has filled in.
unsafe fn post_given(ep: *mut FidEp, msg: *const MsgAtomic, kind: &Kind<'_>, flags: u64) -> Result {
    // SAFETY: passed on from the caller.
    let given = unsafe { given(msg) }?;
    // SAFETY: passed on from the caller.
    let operands = unsafe { Read::of(given.msg_iov, given.desc, given.iov_count) }?;
    let (datatype, op) = number(given.datatype, given.op)?;
    let msg = AtomicMsg {
        iov: operands.iov,
        desc: operands.desc,
        dest: FiAddr(given.addr),
        // SAFETY: passed on from the caller.
        rma_iov: unsafe { lists::rma_ioc(given.rma_iov, given.rma_iov_count) }?,
        datatype,
        op,
        context: lists::context(given.context),
        data: given.data,
    };
    let flags = lists::flags(flags)?;
    // SAFETY: passed on from the caller.
    unsafe { post_msg(ep, &msg, kind, Some(flags)) }
}

/// # Safety
/// As fi_atomic(3) has it.
unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let (iov, desc) = ([Ioc::from_raw(buf, count)], [lists::desc(desc)]);
    let operands = Read {
        iov: &iov,
        desc: &desc,
    };
    let aim = Aim {
        peer,
        addr,
        key,
        datatype,
        op,
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { post(ep, &operands, &Kind::Base, &aim, lists::context(context)) })
}

/// # Safety
/// As fi_atomicv(3) has it.
unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const abi::Ioc,
    desc: *const *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let run = || {
        // SAFETY: passed on from the caller.
        let operands = unsafe { Read::of(iov, desc, count) }?;
        let aim = Aim {
            peer,
            addr,
            key,
            datatype,
            op,
        };
        // SAFETY: passed on from the caller.
        unsafe { post(ep, &operands, &Kind::Base, &aim, lists::context(context)) }
    };
    posted(run())
}

/// # Safety
/// As fi_atomicmsg(3) has it.
unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgAtomic, flags: u64) -> isize {
    // SAFETY: passed on from the caller.
    posted(unsafe { post_given(ep, msg, &Kind::Base, flags) })
}

/// # Safety
/// As fi_inject_atomic(3) has it.
unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
) -> isize {
    let run = || {
        let target = Aim {
            peer,
            addr,
            key,
            datatype,
            op,
        }
        .target()?;
        let len = count
            .checked_mul(target.datatype.size())
            .ok_or(Errno::MsgSize)?;
        // SAFETY: passed on from the caller.
        let bytes = unsafe { lists::bytes(buf, len) }?;
        // SAFETY: passed on from the caller.
        let ep: &Ep = unsafe { this(ep) };
        ep.live()?.inject_atomic(bytes, &target)
    };
    posted(run())
}

/// # Safety
/// As fi_fetch_atomic(3) has it.
unsafe extern "C" fn readwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    result: *mut c_void,
    result_desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let (iov, desc) = ([Ioc::from_raw(buf, count)], [lists::desc(desc)]);
    let operands = Read {
        iov: &iov,
        desc: &desc,
    };
    let (iov, desc) = (
        [IocMut::from_raw(result, count)],
        [lists::desc(result_desc)],
    );
    let kind = Kind::Fetch(Written {
        iov: &iov,
        desc: &desc,
    });
    let aim = Aim {
        peer,
        addr,
        key,
        datatype,
        op,
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { post(ep, &operands, &kind, &aim, lists::context(context)) })
}

/// # Safety
/// As fi_fetch_atomicv(3) has it.
unsafe extern "C" fn readwritev(
    ep: *mut FidEp,
    iov: *const abi::Ioc,
    desc: *const *mut c_void,
    count: usize,
    result: *mut abi::Ioc,
    result_desc: *const *mut c_void,
    result_count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let run = || {
        // SAFETY: passed on from the caller.
        let operands = unsafe { Read::of(iov, desc, count) }?;
        // SAFETY: passed on from the caller.
        let kind = Kind::Fetch(unsafe { Written::of(result, result_desc, result_count) }?);
        let aim = Aim {
            peer,
            addr,
            key,
            datatype,
            op,
        };
        // SAFETY: passed on from the caller.
        unsafe { post(ep, &operands, &kind, &aim, lists::context(context)) }
    };
    posted(run())
}

/// # Safety
/// As fi_fetch_atomicmsg(3) has it.
unsafe extern "C" fn readwritemsg(
    ep: *mut FidEp,
    msg: *const MsgAtomic,
    result: *mut abi::Ioc,
    result_desc: *const *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let run = || {
        // SAFETY: passed on from the caller.
        let kind = Kind::Fetch(unsafe { Written::of(result, result_desc, result_count) }?);
        // SAFETY: passed on from the caller.
        unsafe { post_given(ep, msg, &kind, flags) }
    };
    posted(run())
}

/// # Safety
/// As fi_compare_atomic(3) has it.
unsafe extern "C" fn compwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    compare: *const c_void,
    compare_desc: *mut c_void,
    result: *mut c_void,
    result_desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let (iov, desc) = ([Ioc::from_raw(buf, count)], [lists::desc(desc)]);
    let operands = Read {
        iov: &iov,
        desc: &desc,
    };
    let (iov, desc) = ([Ioc::from_raw(compare, count)], [lists::desc(compare_desc)]);
    let compare = Read {
        iov: &iov,
        desc: &desc,
    };
    let (iov, desc) = (
        [IocMut::from_raw(result, count)],
        [lists::desc(result_desc)],
    );
    let kind = Kind::Compare(
        compare,
        Written {
            iov: &iov,
            desc: &desc,
        },
    );
    let aim = Aim {
        peer,
        addr,
        key,
        datatype,
        op,
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { post(ep, &operands, &kind, &aim, lists::context(context)) })
}

/// # Safety
/// As fi_compare_atomicv(3) has it.
unsafe extern "C" fn compwritev(
    ep: *mut FidEp,
    iov: *const abi::Ioc,
    desc: *const *mut c_void,
    count: usize,
    compare: *const abi::Ioc,
    compare_desc: *const *mut c_void,
    compare_count: usize,
    result: *mut abi::Ioc,
    result_desc: *const *mut c_void,
    result_count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: *mut c_void,
) -> isize {
    let run = || {
        // SAFETY: passed on from the caller.
        let operands = unsafe { Read::of(iov, desc, count) }?;
        // SAFETY: passed on from the caller.
        let compare = unsafe { Read::of(compare, compare_desc, compare_count) }?;
        // SAFETY: passed on from the caller.
        let result = unsafe { Written::of(result, result_desc, result_count) }?;
        let (kind, aim) = (
            Kind::Compare(compare, result),
            Aim {
                peer,
                addr,
                key,
                datatype,
                op,
            },
        );
        // SAFETY: passed on from the caller.
        unsafe { post(ep, &operands, &kind, &aim, lists::context(context)) }
    };
    posted(run())
}

/// # Safety
/// As fi_compare_atomicmsg(3) has it.
unsafe extern "C" fn compwritemsg(
    ep: *mut FidEp,
    msg: *const MsgAtomic,
    compare: *const abi::Ioc,
    compare_desc: *const *mut c_void,
    compare_count: usize,
    result: *mut abi::Ioc,
    result_desc: *const *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let run = || {
        // SAFETY: passed on from the caller.
        let compare = unsafe { Read::of(compare, compare_desc, compare_count) }?;
        // SAFETY: passed on from the caller.
        let result = unsafe { Written::of(result, result_desc, result_count) }?;
        // SAFETY: passed on from the caller.
        unsafe { post_given(ep, msg, &Kind::Compare(compare, result), flags) }
    };
    posted(run())
}

/// # Safety
/// `ep` is an endpoint, `count` is NULL or may be written.
unsafe fn valid(
    ep: *mut FidEp,
    family: Family,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    done(|| {
        let (datatype, op) = number(datatype, op)?;
        let most = match ep.live() {
            Ok(live) => live.valid(family, datatype, op)?.count,
            Err(_) => ep.shared.domain.query_atomic(family, datatype, op)?.count,
        };
        // SAFETY: passed on from the caller.
        unsafe { put(count, most) }
    })
}

/// # Safety
/// As fi_atomicvalid(3) has it.
unsafe extern "C" fn writevalid(
    ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { valid(ep, Family::Base, datatype, op, count) }
}

/// # Safety
/// As fi_fetch_atomicvalid(3) has it.
unsafe extern "C" fn readwritevalid(
    ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { valid(ep, Family::Fetch, datatype, op, count) }
}

/// # Safety
/// As fi_compare_atomicvalid(3) has it.
unsafe extern "C" fn compwritevalid(
    ep: *mut FidEp,
    datatype: u32,
    op: u32,
    count: *mut usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { valid(ep, Family::Compare, datatype, op, count) }
}
