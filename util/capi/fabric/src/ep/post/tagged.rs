//! Tagged messages: `struct fi_ops_tagged`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::tagged::{RecvMsg, SendMsg};
use selvedge::{Endpoint, FiAddr, OpFlags, Result, TagMatch};
use selvedge_abi::{Iovec, MsgTagged, OpsTagged};

use super::forms::{data_forms, forms};
use super::lists::receive_buffer;
use super::message::{
    Buffers, Post, buffer_list, iov, one_buffer, post_full_form, post_inject, post_short_form,
};
use crate::ep::endpoint::Ep;
use crate::object::{Class, Table};
use crate::status::post_status;

pub(crate) static TAGGED: Table<OpsTagged, Ep> =
    with_sends(with_receives(Table::<OpsTagged, Ep>::empty()));
pub(crate) static TX_TAGGED: Table<OpsTagged, Ep> = with_sends(Table::<OpsTagged, Ep>::empty());
pub(crate) static RX_TAGGED: Table<OpsTagged, Ep> = with_receives(Table::<OpsTagged, Ep>::empty());

/// Adds the functions that receive, for endpoints and for shared receive contexts.
pub(crate) const fn with_receives<T: Class + Post>(
    table: Table<OpsTagged, T>,
) -> Table<OpsTagged, T> {
    forms! {
        table, RecvMsg, receive_buffer, collect, (tag, ignore) => TagMatch { tag, ignore };
        recv, recvv, recvmsg
    }
}

/// Adds the functions that send.
const fn with_sends(table: Table<OpsTagged, Ep>) -> Table<OpsTagged, Ep> {
    let table = forms! {
        table, SendMsg, iov, collect, (tag) => TagMatch::exact(tag); send, sendv, sendmsg
    };
    data_forms! {
        table, SendMsg, collect, (tag) => TagMatch::exact(tag);
        senddata, inject, injectdata = tinject
    }
}

/// Collects the arguments of a short form in the structure of the full form.
///
/// # Safety
/// `buffers` points to as many buffers as its count states, and `post` may use them.
#[inline(always)]
unsafe fn collect(
    buffers: Buffers<'_, Iovec>,
    addr: u64,
    TagMatch { tag, ignore }: TagMatch,
    context: *mut c_void,
    data: u64,
    post: impl FnOnce(&MsgTagged) -> Result,
) -> Result {
    post(&MsgTagged {
        msg_iov: buffers.iov,
        desc: buffers.desc,
        iov_count: buffers.count,
        addr,
        tag,
        ignore,
        context,
        data,
    })
}
