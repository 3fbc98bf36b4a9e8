//! Untagged messages: `struct fi_ops_msg`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::msg::{RecvMsg, SendMsg};
use selvedge::{Endpoint, FiAddr, OpFlags, Result};
use selvedge_abi::{Iovec, Msg, OpsMsg};

use super::lists;
use super::message::{
    Buffers, Post, buffer_list, data_flag, iov, one_buffer, post_full_form, post_inject,
    post_short_form,
};
use crate::ep::endpoint::Ep;
use crate::object::{Class, Object, Table};
use crate::status::post_status;

pub(crate) static MSG: Table<OpsMsg, Ep> = with_sends(with_receives(Table::<OpsMsg, Ep>::empty()));
pub(crate) static TX_MSG: Table<OpsMsg, Ep> = with_sends(Table::<OpsMsg, Ep>::empty());
pub(crate) static RX_MSG: Table<OpsMsg, Ep> = with_receives(Table::<OpsMsg, Ep>::empty());

/// Adds the functions that receive, for endpoints and for shared receive contexts.
pub(crate) const fn with_receives<T: Class + Post>(table: Table<OpsMsg, T>) -> Table<OpsMsg, T> {
    table
        .recv(|target, buf, len, desc, src, context| {
            let buffer = lists::receive_buffer(buf, len);
            // SAFETY: the C caller follows fi_recv(3).
            post_status(unsafe { recv(target, one_buffer(&buffer, &desc), src, context) })
        })
        .recvv(|target, iov, desc, count, src, context| {
            // SAFETY: the C caller follows fi_recvv(3).
            post_status(unsafe { recv(target, buffer_list(iov, desc, count), src, context) })
        })
        .recvmsg(|target, msg, flags| {
            // SAFETY: the C caller follows fi_recvmsg(3).
            post_status(unsafe { post_full_form::<RecvMsg<'_>>(target, msg, flags) })
        })
}

/// Adds the functions that send.
const fn with_sends(table: Table<OpsMsg, Ep>) -> Table<OpsMsg, Ep> {
    table
        .send(|ep, buf, len, desc, dest, context| {
            // SAFETY: the C caller follows fi_send(3).
            post_status(unsafe { send(ep, one_buffer(&iov(buf, len), &desc), dest, context, None) })
        })
        .sendv(|ep, iov, desc, count, dest, context| {
            // SAFETY: the C caller follows fi_sendv(3).
            post_status(unsafe { send(ep, buffer_list(iov, desc, count), dest, context, None) })
        })
        .sendmsg(|ep, msg, flags| {
            // SAFETY: the C caller follows fi_sendmsg(3).
            post_status(unsafe { post_full_form::<SendMsg<'_>>(ep, msg, flags) })
        })
        .senddata(|ep, buf, len, desc, data, dest, context| {
            // SAFETY: the C caller follows fi_senddata(3).
            post_status(unsafe {
                send(
                    ep,
                    one_buffer(&iov(buf, len), &desc),
                    dest,
                    context,
                    Some(data),
                )
            })
        })
        .inject(|ep, buf, len, dest| {
            let inject = |ep: &dyn Endpoint, bytes: &[u8]| ep.inject(bytes, FiAddr(dest), None);
            // SAFETY: the C caller follows fi_inject(3).
            post_status(unsafe { post_inject(ep, buf, len, inject) })
        })
        .injectdata(|ep, buf, len, data, dest| {
            let inject =
                |ep: &dyn Endpoint, bytes: &[u8]| ep.inject(bytes, FiAddr(dest), Some(data));
            // SAFETY: the C caller follows fi_injectdata(3).
            post_status(unsafe { post_inject(ep, buf, len, inject) })
        })
}

/// # Safety
/// The caller follows fi_send(3).
#[inline(always)]
unsafe fn send(
    ep: &Object<Ep>,
    buffers: Buffers<'_, Iovec>,
    dest: u64,
    context: *mut c_void,
    data: Option<u64>,
) -> Result {
    let msg = msg(&buffers, dest, context, data.unwrap_or(0));
    // SAFETY: passed on from the caller.
    unsafe { post_short_form::<SendMsg<'_>>(ep, &msg, data_flag(data)) }
}

/// # Safety
/// The caller follows fi_recv(3).
#[inline(always)]
unsafe fn recv(
    target: &impl Post,
    buffers: Buffers<'_, Iovec>,
    src: u64,
    context: *mut c_void,
) -> Result {
    let msg = msg(&buffers, src, context, 0);
    // SAFETY: passed on from the caller.
    unsafe { post_short_form::<RecvMsg<'_>>(target, &msg, OpFlags::empty()) }
}

#[inline(always)]
const fn msg(buffers: &Buffers<'_, Iovec>, addr: u64, context: *mut c_void, data: u64) -> Msg {
    Msg {
        msg_iov: buffers.iov,
        desc: buffers.desc,
        iov_count: buffers.count,
        addr,
        context,
        data,
    }
}
