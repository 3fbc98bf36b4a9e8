//! Untagged messages: `struct fi_ops_msg`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::msg::{RecvMsg, SendMsg};
use selvedge::{Endpoint, FiAddr, OpFlags, Result};
use selvedge_abi::{Iovec, Msg, OpsMsg};

use super::forms::{data_forms, forms};
use super::lists::receive_buffer;
use super::message::{
    Buffers, Post, buffer_list, iov, one_buffer, post_full_form, post_inject, post_short_form,
};
use crate::ep::endpoint::Ep;
use crate::object::{Class, Table};
use crate::status::post_status;

pub(crate) static MSG: Table<OpsMsg, Ep> = with_sends(with_receives(Table::<OpsMsg, Ep>::empty()));
pub(crate) static TX_MSG: Table<OpsMsg, Ep> = with_sends(Table::<OpsMsg, Ep>::empty());
pub(crate) static RX_MSG: Table<OpsMsg, Ep> = with_receives(Table::<OpsMsg, Ep>::empty());

/// Adds the functions that receive, for endpoints and for shared receive contexts.
pub(crate) const fn with_receives<T: Class + Post>(table: Table<OpsMsg, T>) -> Table<OpsMsg, T> {
    forms!(table, RecvMsg, receive_buffer, collect, () => (); recv, recvv, recvmsg)
}

/// Adds the functions that send.
const fn with_sends(table: Table<OpsMsg, Ep>) -> Table<OpsMsg, Ep> {
    let table = forms!(table, SendMsg, iov, collect, () => (); send, sendv, sendmsg);
    data_forms!(table, SendMsg, collect, () => (); senddata, inject, injectdata = inject)
}

/// Collects the arguments of a short form in the structure of the full form.
///
/// # Safety
/// `buffers` points to as many buffers as its count states, and `post` may use them.
#[inline(always)]
unsafe fn collect(
    buffers: Buffers<'_, Iovec>,
    addr: u64,
    (): (),
    context: *mut c_void,
    data: u64,
    post: impl FnOnce(&Msg) -> Result,
) -> Result {
    post(&Msg {
        msg_iov: buffers.iov,
        desc: buffers.desc,
        iov_count: buffers.count,
        addr,
        context,
        data,
    })
}
