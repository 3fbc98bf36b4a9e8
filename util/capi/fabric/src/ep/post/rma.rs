//! Remote memory access: `struct fi_ops_rma`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::{Endpoint, FiAddr, Iov, OpFlags, Result};
use selvedge_abi::{Iovec, MsgRma, OpsRma, RmaIov};

use super::forms::{data_forms, forms};
use super::lists;
use super::message::{
    Buffers, buffer_list, iov, one_buffer, post_full_form, post_inject, post_short_form,
};
use crate::ep::endpoint::Ep;
use crate::object::Table;
use crate::status::post_status;

pub(crate) static RMA: Table<OpsRma, Ep> = with_writes(with_reads(Table::<OpsRma, Ep>::empty()));

const fn with_reads(table: Table<OpsRma, Ep>) -> Table<OpsRma, Ep> {
    forms!(table, ReadMsg, iov, collect, (addr, key) => (addr, key); read, readv, readmsg)
}

const fn with_writes(table: Table<OpsRma, Ep>) -> Table<OpsRma, Ep> {
    let table =
        forms!(table, WriteMsg, iov, collect, (addr, key) => (addr, key); write, writev, writemsg);
    data_forms! {
        table, WriteMsg, collect, (addr, key) => (addr, key);
        writedata, inject, injectdata = inject_write
    }
}

/// Collects the arguments of a short form in the structure of the full form. The length of the
/// remote memory is the total length of the buffers.
///
/// # Errors
/// As [`lists::total`]; those of `post`.
///
/// # Safety
/// `buffers` points to as many buffers as its count states, and `post` may use them.
#[inline(always)]
unsafe fn collect(
    buffers: Buffers<'_, Iovec>,
    peer: u64,
    (addr, key): (u64, u64),
    context: *mut c_void,
    data: u64,
    post: impl FnOnce(&MsgRma) -> Result,
) -> Result {
    // SAFETY: passed on from the caller.
    let segments: &[Iov] = unsafe { lists::bounded(buffers.iov, buffers.count) }?;
    let len = lists::total(segments.iter().map(|segment| segment.len))?;
    post(&MsgRma {
        msg_iov: buffers.iov,
        desc: buffers.desc,
        iov_count: buffers.count,
        addr: peer,
        rma_iov: &RmaIov { addr, len, key },
        rma_iov_count: 1,
        context,
        data,
    })
}
