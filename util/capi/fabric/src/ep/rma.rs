//! Remote memory access: `struct fi_ops_rma`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{Context, Desc, Errno, FiAddr, Iov, IovMut, Op, OpFlags, Result};
use selvedge_abi::{FidEp, Iovec, MsgRma, OpsRma};

use super::later::or_later;
use super::{Ep, lists};
use crate::answer::posted;
use crate::given::given;
use crate::object::this;

pub(super) static RMA: OpsRma = OpsRma {
    size: size_of::<OpsRma>(),
    read: Some(read),
    readv: Some(readv),
    readmsg: Some(readmsg),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    writedata: Some(writedata),
    injectdata: Some(injectdata),
};
pub(super) static CLOSED: OpsRma = OpsRma::refusing::<{ libc::EBADF }>();

/// One stretch of a peer's memory, as the short forms name it.
struct Place {
    peer: u64,
    addr: u64,
    key: u64,
}

/// The length of a list, which is that of the place.
fn total(mut lens: impl Iterator<Item = usize>) -> Result<usize> {
    lens.try_fold(0_usize, |sum, len| sum.checked_add(len))
        .ok_or(Errno::Inval)
}

/// # Safety
/// As fi_readmsg(3) has it: what the lists name stays until it is complete.
#[inline(always)]
unsafe fn post_read(
    ep: *mut FidEp,
    iov: &[IovMut],
    desc: &[Desc],
    from: &Place,
    context: Context,
) -> Result {
    lists::named(iov)?;
    let len = total(iov.iter().map(|piece| piece.len))?;
    let (addr, key) = (from.addr, from.key);
    let msg = ReadMsg {
        iov,
        desc,
        src: FiAddr(from.peer),
        rma_iov: &[RmaIov { addr, len, key }],
        context,
    };
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    let flags = ep.tx_flags();
    // SAFETY: passed on from the caller.
    let answer = unsafe { ep.live()?.readmsg(&msg, flags) };
    // SAFETY: passed on from the caller.
    unsafe { or_later(ep, answer, flags, || Op::Read(msg)) }
}

/// # Safety
/// As fi_writemsg(3) has it: what the lists name stays until it is complete.
#[inline(always)]
unsafe fn post_write(
    ep: *mut FidEp,
    iov: &[Iov],
    desc: &[Desc],
    to: &Place,
    data: Option<u64>,
    context: Context,
) -> Result {
    lists::named(iov)?;
    let len = total(iov.iter().map(|piece| piece.len))?;
    let (addr, key) = (to.addr, to.key);
    let msg = WriteMsg {
        iov,
        desc,
        dest: FiAddr(to.peer),
        rma_iov: &[RmaIov { addr, len, key }],
        context,
        data: data.unwrap_or(0),
    };
    let more = match data {
        Some(_) => OpFlags::REMOTE_CQ_DATA,
        None => OpFlags::empty(),
    };
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    let flags = ep.tx_flags() | more;
    // SAFETY: passed on from the caller.
    let answer = unsafe { ep.live()?.writemsg(&msg, flags) };
    // SAFETY: passed on from the caller.
    unsafe { or_later(ep, answer, flags, || Op::Write(msg)) }
}

/// # Safety
/// As fi_read(3) has it.
unsafe extern "C" fn read(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (iov, desc) = ([IovMut::from_raw(buf, len)], [lists::desc(desc)]);
    let from = Place { peer, addr, key };
    // SAFETY: passed on from the caller.
    posted(unsafe { post_read(ep, &iov, &desc, &from, lists::context(context)) })
}

/// # Safety
/// As fi_readv(3) has it.
unsafe extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const Iovec,
    desc: *const *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let post = || {
        // SAFETY: passed on from the caller.
        let iov = unsafe { lists::iov_mut(iov, count) }?;
        // SAFETY: passed on from the caller.
        let desc = unsafe { lists::descs(desc, count) }?;
        let from = Place { peer, addr, key };
        // SAFETY: passed on from the caller.
        unsafe { post_read(ep, iov, desc, &from, lists::context(context)) }
    };
    posted(post())
}

/// # Safety
/// As fi_readmsg(3) has it.
unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    let post = || {
        // SAFETY: passed on from the caller.
        let given = unsafe { given(msg) }?;
        let msg = ReadMsg {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::iov_mut(given.msg_iov, given.iov_count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(given.desc, given.iov_count) }?,
            src: FiAddr(given.addr),
            // SAFETY: passed on from the caller.
            rma_iov: unsafe { lists::rma_iov(given.rma_iov, given.rma_iov_count) }?,
            context: lists::context(given.context),
        };
        let flags = lists::flags(flags)?;
        // SAFETY: passed on from the caller.
        let ep: &Ep = unsafe { this(ep) };
        // SAFETY: passed on from the caller.
        let answer = unsafe { ep.live()?.readmsg(&msg, flags) };
        // SAFETY: passed on from the caller.
        unsafe { or_later(ep, answer, flags, || Op::Read(msg)) }
    };
    posted(post())
}

/// # Safety
/// As fi_write(3) has it.
unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (iov, desc) = ([Iov::from_raw(buf, len)], [lists::desc(desc)]);
    let to = Place { peer, addr, key };
    // SAFETY: passed on from the caller.
    posted(unsafe { post_write(ep, &iov, &desc, &to, None, lists::context(context)) })
}

/// # Safety
/// As fi_writev(3) has it.
unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const Iovec,
    desc: *const *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let post = || {
        // SAFETY: passed on from the caller.
        let iov = unsafe { lists::iov(iov, count) }?;
        // SAFETY: passed on from the caller.
        let desc = unsafe { lists::descs(desc, count) }?;
        let to = Place { peer, addr, key };
        // SAFETY: passed on from the caller.
        unsafe { post_write(ep, iov, desc, &to, None, lists::context(context)) }
    };
    posted(post())
}

/// # Safety
/// As fi_writemsg(3) has it.
unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize {
    let post = || {
        // SAFETY: passed on from the caller.
        let given = unsafe { given(msg) }?;
        let msg = WriteMsg {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::iov(given.msg_iov, given.iov_count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(given.desc, given.iov_count) }?,
            dest: FiAddr(given.addr),
            // SAFETY: passed on from the caller.
            rma_iov: unsafe { lists::rma_iov(given.rma_iov, given.rma_iov_count) }?,
            context: lists::context(given.context),
            data: given.data,
        };
        let flags = lists::flags(flags)?;
        // SAFETY: passed on from the caller.
        let ep: &Ep = unsafe { this(ep) };
        // SAFETY: passed on from the caller.
        let answer = unsafe { ep.live()?.writemsg(&msg, flags) };
        // SAFETY: passed on from the caller.
        unsafe { or_later(ep, answer, flags, || Op::Write(msg)) }
    };
    posted(post())
}

/// # Safety
/// `buf` names `len` bytes, `ep` is an endpoint.
unsafe fn copied(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: &Place,
    data: Option<u64>,
) -> Result {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    // SAFETY: passed on from the caller.
    let bytes = unsafe { lists::bytes(buf, len) }?;
    let live = ep.live()?;
    live.inject_write(bytes, FiAddr(to.peer), to.addr, to.key, data)
}

/// # Safety
/// As fi_inject_write(3) has it.
unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: passed on from the caller.
    posted(unsafe { copied(ep, buf, len, &Place { peer, addr, key }, None) })
}

/// # Safety
/// As fi_writedata(3) has it.
unsafe extern "C" fn writedata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (iov, desc) = ([Iov::from_raw(buf, len)], [lists::desc(desc)]);
    let to = Place { peer, addr, key };
    // SAFETY: passed on from the caller.
    posted(unsafe { post_write(ep, &iov, &desc, &to, Some(data), lists::context(context)) })
}

/// # Safety
/// As fi_inject_writedata(3) has it.
unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    peer: u64,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: passed on from the caller.
    posted(unsafe { copied(ep, buf, len, &Place { peer, addr, key }, Some(data)) })
}
