//! Tagged messages: `struct fi_ops_tagged`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::tagged::{RecvMsg, SendMsg};
use selvedge::{Endpoint, FiAddr, OpFlags, Result, TagMatch};
use selvedge_abi::{Iovec, MsgTagged, OpsTagged};

use super::lists;
use super::message::{
    Buffers, Post, buffer_list, data_flag, iov, one_buffer, post_full_form, post_inject,
    post_short_form,
};
use crate::ep::endpoint::Ep;
use crate::object::{Class, Object, Table};
use crate::status::post_status;

pub(crate) static TAGGED: Table<OpsTagged, Ep> =
    with_sends(with_receives(Table::<OpsTagged, Ep>::empty()));
pub(crate) static TX_TAGGED: Table<OpsTagged, Ep> = with_sends(Table::<OpsTagged, Ep>::empty());
pub(crate) static RX_TAGGED: Table<OpsTagged, Ep> = with_receives(Table::<OpsTagged, Ep>::empty());

/// Adds the functions that receive, for endpoints and for shared receive contexts.
pub(crate) const fn with_receives<T: Class + Post>(
    table: Table<OpsTagged, T>,
) -> Table<OpsTagged, T> {
    table
        .recv(|target, buf, len, desc, src, tag, ignore, context| {
            let (buffer, tag) = (lists::receive_buffer(buf, len), TagMatch { tag, ignore });
            // SAFETY: the C caller follows fi_trecv(3).
            post_status(unsafe { recv(target, one_buffer(&buffer, &desc), src, tag, context) })
        })
        .recvv(|target, iov, desc, count, src, tag, ignore, context| {
            let tag = TagMatch { tag, ignore };
            // SAFETY: the C caller follows fi_trecvv(3).
            post_status(unsafe { recv(target, buffer_list(iov, desc, count), src, tag, context) })
        })
        .recvmsg(|target, msg, flags| {
            // SAFETY: the C caller follows fi_trecvmsg(3).
            post_status(unsafe { post_full_form::<RecvMsg<'_>>(target, msg, flags) })
        })
}

/// Adds the functions that send.
const fn with_sends(table: Table<OpsTagged, Ep>) -> Table<OpsTagged, Ep> {
    table
        .send(|ep, buf, len, desc, dest, tag, context| {
            // SAFETY: the C caller follows fi_tsend(3).
            post_status(unsafe {
                send(
                    ep,
                    one_buffer(&iov(buf, len), &desc),
                    dest,
                    tag,
                    context,
                    None,
                )
            })
        })
        .sendv(|ep, iov, desc, count, dest, tag, context| {
            // SAFETY: the C caller follows fi_tsendv(3).
            post_status(unsafe {
                send(ep, buffer_list(iov, desc, count), dest, tag, context, None)
            })
        })
        .sendmsg(|ep, msg, flags| {
            // SAFETY: the C caller follows fi_tsendmsg(3).
            post_status(unsafe { post_full_form::<SendMsg<'_>>(ep, msg, flags) })
        })
        .senddata(|ep, buf, len, desc, data, dest, tag, context| {
            let iov = iov(buf, len);
            // SAFETY: the C caller follows fi_tsenddata(3).
            post_status(unsafe {
                send(ep, one_buffer(&iov, &desc), dest, tag, context, Some(data))
            })
        })
        .inject(|ep, buf, len, dest, tag| {
            let inject =
                |ep: &dyn Endpoint, bytes: &[u8]| ep.tinject(bytes, FiAddr(dest), tag, None);
            // SAFETY: the C caller follows fi_tinject(3).
            post_status(unsafe { post_inject(ep, buf, len, inject) })
        })
        .injectdata(|ep, buf, len, data, dest, tag| {
            let inject =
                |ep: &dyn Endpoint, bytes: &[u8]| ep.tinject(bytes, FiAddr(dest), tag, Some(data));
            // SAFETY: the C caller follows fi_tinjectdata(3).
            post_status(unsafe { post_inject(ep, buf, len, inject) })
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
    unsafe { post_short_form::<SendMsg<'_>>(ep, &msg, data_flag(data)) }
}

/// # Safety
/// The caller follows fi_trecv(3).
#[inline(always)]
unsafe fn recv(
    target: &impl Post,
    buffers: Buffers<'_, Iovec>,
    src: u64,
    tag: TagMatch,
    context: *mut c_void,
) -> Result {
    let msg = msg(&buffers, src, tag, context, 0);
    // SAFETY: passed on from the caller.
    unsafe { post_short_form::<RecvMsg<'_>>(target, &msg, OpFlags::empty()) }
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
