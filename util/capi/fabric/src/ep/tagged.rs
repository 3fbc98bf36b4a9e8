//! Tagged messages: `struct fi_ops_tagged`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::tagged::{RecvMsg, SendMsg};
use selvedge::{FiAddr, Iov, Op, OpFlags, Result, TagMatch};
use selvedge_abi::{FidEp, Iovec, MsgTagged, OpsTagged};

use super::later::or_later;
use super::{Ep, lists};
use crate::answer::posted;
use crate::given::given;
use crate::object::this;

pub(super) static TAGGED: OpsTagged = TABLE;
pub(super) const TABLE: OpsTagged = OpsTagged {
    size: size_of::<OpsTagged>(),
    recv: Some(recv),
    recvv: Some(recvv),
    recvmsg: Some(recvmsg),
    send: Some(send),
    sendv: Some(sendv),
    sendmsg: Some(sendmsg),
    inject: Some(inject),
    senddata: Some(senddata),
    injectdata: Some(injectdata),
};
pub(super) static CLOSED: OpsTagged = OpsTagged::refusing::<{ libc::EBADF }>();

/// # Safety
/// As fi_tsendmsg(3) has it: what the message names stays until it is complete.
#[inline(always)]
unsafe fn post(ep: *mut FidEp, msg: &SendMsg<'_>, more: OpFlags) -> Result {
    lists::named(msg.iov)?;
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    let flags = ep.tx_flags() | more;
    // SAFETY: passed on from the caller.
    let answer = unsafe { ep.live()?.tsendmsg(msg, flags) };
    // SAFETY: passed on from the caller.
    unsafe { or_later(ep, answer, flags, || Op::TaggedSend(*msg)) }
}

/// # Safety
/// As fi_trecvmsg(3) has it: what the message names stays until it is complete.
#[inline(always)]
unsafe fn post_recv(ep: *mut FidEp, msg: &RecvMsg<'_>) -> Result {
    lists::named(msg.iov)?;
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    let flags = ep.rx_flags();
    // SAFETY: passed on from the caller.
    let answer = unsafe { ep.live()?.trecvmsg(msg, flags) };
    // SAFETY: passed on from the caller.
    unsafe { or_later(ep, answer, flags, || Op::TaggedRecv(*msg)) }
}

/// # Safety
/// As fi_trecv(3) has it.
unsafe extern "C" fn recv(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    desc: *mut c_void,
    src: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let msg = RecvMsg {
        iov: &[lists::room(buf, len)],
        desc: &[lists::desc(desc)],
        src: FiAddr(src),
        tag: TagMatch { tag, ignore },
        context: lists::context(context),
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { post_recv(ep, &msg) })
}

/// # Safety
/// As fi_trecvv(3) has it.
unsafe extern "C" fn recvv(
    ep: *mut FidEp,
    iov: *const Iovec,
    desc: *const *mut c_void,
    count: usize,
    src: u64,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    let post = || {
        let msg = RecvMsg {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::iov_room(iov, count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(desc, count) }?,
            src: FiAddr(src),
            tag: TagMatch { tag, ignore },
            context: lists::context(context),
        };
        // SAFETY: passed on from the caller.
        unsafe { post_recv(ep, &msg) }
    };
    posted(post())
}

/// # Safety
/// As fi_trecvmsg(3) has it.
unsafe extern "C" fn recvmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    let post = || {
        // SAFETY: passed on from the caller.
        let given = unsafe { given(msg) }?;
        let msg = RecvMsg {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::iov_room(given.msg_iov, given.iov_count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(given.desc, given.iov_count) }?,
            src: FiAddr(given.addr),
            tag: TagMatch {
                tag: given.tag,
                ignore: given.ignore,
            },
            context: lists::context(given.context),
        };
        let flags = lists::flags(flags)?;
        // SAFETY: passed on from the caller.
        let ep: &Ep = unsafe { this(ep) };
        // SAFETY: passed on from the caller.
        let answer = unsafe { ep.live()?.trecvmsg(&msg, flags) };
        // SAFETY: passed on from the caller.
        unsafe { or_later(ep, answer, flags, || Op::TaggedRecv(msg)) }
    };
    posted(post())
}

/// # Safety
/// As fi_tsend(3) has it.
unsafe extern "C" fn send(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    dest: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let msg = SendMsg {
        iov: &[Iov::from_raw(buf, len)],
        desc: &[lists::desc(desc)],
        dest: FiAddr(dest),
        tag,
        context: lists::context(context),
        data: 0,
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { post(ep, &msg, OpFlags::empty()) })
}

/// # Safety
/// As fi_tsendv(3) has it.
unsafe extern "C" fn sendv(
    ep: *mut FidEp,
    iov: *const Iovec,
    desc: *const *mut c_void,
    count: usize,
    dest: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let post = || {
        let msg = SendMsg {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::iov(iov, count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(desc, count) }?,
            dest: FiAddr(dest),
            tag,
            context: lists::context(context),
            data: 0,
        };
        // SAFETY: passed on from the caller.
        unsafe { post(ep, &msg, OpFlags::empty()) }
    };
    posted(post())
}

/// # Safety
/// As fi_tsendmsg(3) has it.
unsafe extern "C" fn sendmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize {
    let post = || {
        // SAFETY: passed on from the caller.
        let given = unsafe { given(msg) }?;
        let msg = SendMsg {
            // SAFETY: passed on from the caller.
            iov: unsafe { lists::iov(given.msg_iov, given.iov_count) }?,
            // SAFETY: passed on from the caller.
            desc: unsafe { lists::descs(given.desc, given.iov_count) }?,
            dest: FiAddr(given.addr),
            tag: given.tag,
            context: lists::context(given.context),
            data: given.data,
        };
        let flags = lists::flags(flags)?;
        // SAFETY: passed on from the caller.
        let ep: &Ep = unsafe { this(ep) };
        // SAFETY: passed on from the caller.
        let answer = unsafe { ep.live()?.tsendmsg(&msg, flags) };
        // SAFETY: passed on from the caller.
        unsafe { or_later(ep, answer, flags, || Op::TaggedSend(msg)) }
    };
    posted(post())
}

/// # Safety
/// `buf` names `len` bytes, `ep` is an endpoint.
#[inline(always)]
unsafe fn copied(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    dest: u64,
    tag: u64,
    data: Option<u64>,
) -> Result {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    // SAFETY: passed on from the caller.
    let bytes = unsafe { lists::bytes(buf, len) }?;
    ep.live()?.tinject(bytes, FiAddr(dest), tag, data)
}

/// # Safety
/// As fi_tinject(3) has it.
unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    dest: u64,
    tag: u64,
) -> isize {
    // SAFETY: passed on from the caller.
    posted(unsafe { copied(ep, buf, len, dest, tag, None) })
}

/// # Safety
/// As fi_tsenddata(3) has it.
unsafe extern "C" fn senddata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    desc: *mut c_void,
    data: u64,
    dest: u64,
    tag: u64,
    context: *mut c_void,
) -> isize {
    let msg = SendMsg {
        iov: &[Iov::from_raw(buf, len)],
        desc: &[lists::desc(desc)],
        dest: FiAddr(dest),
        tag,
        context: lists::context(context),
        data,
    };
    // SAFETY: passed on from the caller.
    posted(unsafe { post(ep, &msg, OpFlags::REMOTE_CQ_DATA) })
}

/// # Safety
/// As fi_tinjectdata(3) has it.
unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest: u64,
    tag: u64,
) -> isize {
    // SAFETY: passed on from the caller.
    posted(unsafe { copied(ep, buf, len, dest, tag, Some(data)) })
}
