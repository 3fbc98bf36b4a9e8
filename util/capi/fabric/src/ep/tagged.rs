//! Tagged messages: `struct fi_ops_tagged`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::tagged::{RecvMsg, SendMsg};
use selvedge::{Endpoint, FiAddr, OpFlags, Result, TagMatch};
use selvedge_abi::{Iovec, MsgTagged, OpsTagged};

use super::post::{Buffers, Post, data_flag, full, injected, iov, list, one, short};
use super::{Ep, lists};
use crate::object::{Class, Object, Table};
use crate::status::post_status;

pub(super) static TAGGED: Table<OpsTagged, Ep> = sends(receives(Table::<OpsTagged, Ep>::empty()));
pub(super) static TX_TAGGED: Table<OpsTagged, Ep> = sends(Table::<OpsTagged, Ep>::empty());
pub(super) static RX_TAGGED: Table<OpsTagged, Ep> = receives(Table::<OpsTagged, Ep>::empty());

/// The functions that receive, for endpoints and for shared receive contexts.
pub(super) const fn receives<T: Class + Post>(table: Table<OpsTagged, T>) -> Table<OpsTagged, T> {
    table
        .recv(|to, buf, len, desc, src, tag, ignore, context| {
            let (buffer, tag) = (lists::receive_buffer(buf, len), TagMatch { tag, ignore });
            // SAFETY: the C caller follows fi_trecv(3).
            post_status(unsafe { recv(to, one(&buffer, &desc), src, tag, context) })
        })
        .recvv(|to, iov, desc, count, src, tag, ignore, context| {
            let tag = TagMatch { tag, ignore };
            // SAFETY: the C caller follows fi_trecvv(3).
            post_status(unsafe { recv(to, list(iov, desc, count), src, tag, context) })
        })
        // SAFETY: the C caller follows fi_trecvmsg(3).
        .recvmsg(|to, msg, flags| post_status(unsafe { full::<RecvMsg<'_>>(to, msg, flags) }))
}

/// The functions that send.
const fn sends(table: Table<OpsTagged, Ep>) -> Table<OpsTagged, Ep> {
    table
        .send(|ep, buf, len, desc, dest, tag, context| {
            // SAFETY: the C caller follows fi_tsend(3).
            post_status(unsafe { send(ep, one(&iov(buf, len), &desc), dest, tag, context, None) })
        })
        .sendv(|ep, iov, desc, count, dest, tag, context| {
            // SAFETY: the C caller follows fi_tsendv(3).
            post_status(unsafe { send(ep, list(iov, desc, count), dest, tag, context, None) })
        })
        // SAFETY: the C caller follows fi_tsendmsg(3).
        .sendmsg(|ep, msg, flags| post_status(unsafe { full::<SendMsg<'_>>(ep, msg, flags) }))
        .senddata(|ep, buf, len, desc, data, dest, tag, context| {
            let iov = iov(buf, len);
            // SAFETY: the C caller follows fi_tsenddata(3).
            post_status(unsafe { send(ep, one(&iov, &desc), dest, tag, context, Some(data)) })
        })
        .inject(|ep, buf, len, dest, tag| {
            let inject =
                |ep: &dyn Endpoint, bytes: &[u8]| ep.tinject(bytes, FiAddr(dest), tag, None);
            // SAFETY: the C caller follows fi_tinject(3).
            post_status(unsafe { injected(ep, buf, len, inject) })
        })
        .injectdata(|ep, buf, len, data, dest, tag| {
            let inject =
                |ep: &dyn Endpoint, bytes: &[u8]| ep.tinject(bytes, FiAddr(dest), tag, Some(data));
            // SAFETY: the C caller follows fi_tinjectdata(3).
            post_status(unsafe { injected(ep, buf, len, inject) })
        })
}

/// # Safety
/// The caller follows fi_tsend(3).
#[inline(always)]
unsafe fn send(
    ep: &Object<Ep>,
    buffers: Buffers<'_, Iovec>,
    dest: u64,
    tag: u64,
    context: *mut c_void,
    data: Option<u64>,
) -> Result {
    let msg = msg(
        &buffers,
        dest,
        TagMatch::exact(tag),
        context,
        data.unwrap_or(0),
    );
    // SAFETY: passed on from the caller.
    unsafe { short::<SendMsg<'_>>(ep, &msg, data_flag(data)) }
}

/// # Safety
/// The caller follows fi_trecv(3).
#[inline(always)]
unsafe fn recv(
    to: &impl Post,
    buffers: Buffers<'_, Iovec>,
    src: u64,
    tag: TagMatch,
    context: *mut c_void,
) -> Result {
    let msg = msg(&buffers, src, tag, context, 0);
    // SAFETY: passed on from the caller.
    unsafe { short::<RecvMsg<'_>>(to, &msg, OpFlags::empty()) }
}

#[inline(always)]
const fn msg(
    buffers: &Buffers<'_, Iovec>,
    addr: u64,
    TagMatch { tag, ignore }: TagMatch,
    context: *mut c_void,
    data: u64,
) -> MsgTagged {
    MsgTagged {
        msg_iov: buffers.iov,
        desc: buffers.desc,
        iov_count: buffers.count,
        addr,
        tag,
        ignore,
        context,
        data,
    }
}
