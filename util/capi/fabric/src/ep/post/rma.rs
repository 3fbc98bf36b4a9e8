//! Remote memory access: `struct fi_ops_rma`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::{Endpoint, FiAddr, Iov, OpFlags, Result};
use selvedge_abi::{Iovec, MsgRma, OpsRma, RmaIov};

use super::lists;
use super::message::{
    Buffers, buffer_list, data_flag, iov, one_buffer, post_full_form, post_inject, post_short_form,
};
use crate::ep::endpoint::Ep;
use crate::object::{Object, Table};
use crate::status::post_status;

pub(crate) static RMA: Table<OpsRma, Ep> = Table::<OpsRma, Ep>::empty()
    .read(|ep, buf, len, desc, src, addr, key, context| {
        // SAFETY: the C caller follows fi_read(3).
        post_status(unsafe {
            read(
                ep,
                one_buffer(&iov(buf, len), &desc),
                src,
                (addr, key),
                context,
            )
        })
    })
    .readv(|ep, iov, desc, count, src, addr, key, context| {
        // SAFETY: the C caller follows fi_readv(3).
        post_status(unsafe { read(ep, buffer_list(iov, desc, count), src, (addr, key), context) })
    })
    // SAFETY: the C caller follows fi_readmsg(3).
    .readmsg(|ep, msg, flags| post_status(unsafe { post_full_form::<ReadMsg<'_>>(ep, msg, flags) }))
    .write(|ep, buf, len, desc, dest, addr, key, context| {
        let iov = iov(buf, len);
        // SAFETY: the C caller follows fi_write(3).
        post_status(unsafe {
            write(
                ep,
                one_buffer(&iov, &desc),
                dest,
                (addr, key),
                context,
                None,
            )
        })
    })
    .writev(|ep, iov, desc, count, dest, addr, key, context| {
        let buffers = buffer_list(iov, desc, count);
        // SAFETY: the C caller follows fi_writev(3).
        post_status(unsafe { write(ep, buffers, dest, (addr, key), context, None) })
    })
    .writemsg(|ep, msg, flags| {
        // SAFETY: the C caller follows fi_writemsg(3).
        post_status(unsafe { post_full_form::<WriteMsg<'_>>(ep, msg, flags) })
    })
    .writedata(|ep, buf, len, desc, data, dest, addr, key, context| {
        let iov = iov(buf, len);
        // SAFETY: the C caller follows fi_writedata(3).
        post_status(unsafe {
            write(
                ep,
                one_buffer(&iov, &desc),
                dest,
                (addr, key),
                context,
                Some(data),
            )
        })
    })
    .inject(|ep, buf, len, dest, addr, key| {
        let inject =
            |ep: &dyn Endpoint, bytes: &[u8]| ep.inject_write(bytes, FiAddr(dest), addr, key, None);
        // SAFETY: the C caller follows fi_inject_write(3).
        post_status(unsafe { post_inject(ep, buf, len, inject) })
    })
    .injectdata(|ep, buf, len, data, dest, addr, key| {
        let inject = |ep: &dyn Endpoint, bytes: &[u8]| {
            ep.inject_write(bytes, FiAddr(dest), addr, key, Some(data))
        };
        // SAFETY: the C caller follows fi_inject_writedata(3).
        post_status(unsafe { post_inject(ep, buf, len, inject) })
    });

/// A remote address, and the key of its memory.
type RemoteSegment = (u64, u64);

/// # Safety
/// The caller follows fi_read(3).
#[inline(always)]
unsafe fn read(
    ep: &Object<Ep>,
    buffers: Buffers<'_, Iovec>,
    src: u64,
    remote: RemoteSegment,
    context: *mut c_void,
) -> Result {
    // SAFETY: passed on from the caller.
    let remote = unsafe { remote_segment(&buffers, remote) }?;
    let msg = msg(&buffers, src, &remote, context, 0);
    // SAFETY: passed on from the caller.
    unsafe { post_short_form::<ReadMsg<'_>>(ep, &msg, OpFlags::empty()) }
}

/// # Safety
/// The caller follows fi_write(3).
#[inline(always)]
unsafe fn write(
    ep: &Object<Ep>,
    buffers: Buffers<'_, Iovec>,
    dest: u64,
    remote: RemoteSegment,
    context: *mut c_void,
    data: Option<u64>,
) -> Result {
    // SAFETY: passed on from the caller.
    let remote = unsafe { remote_segment(&buffers, remote) }?;
    let msg = msg(&buffers, dest, &remote, context, data.unwrap_or(0));
    // SAFETY: passed on from the caller.
    unsafe { post_short_form::<WriteMsg<'_>>(ep, &msg, data_flag(data)) }
}

/// The remote segment, whose length is the total length of the buffers.
///
/// # Errors
/// As [`lists::total`].
///
/// # Safety
/// `buffers` points to as many buffers as its count states.
#[inline(always)]
unsafe fn remote_segment(
    buffers: &Buffers<'_, Iovec>,
    (addr, key): RemoteSegment,
) -> Result<RmaIov> {
    // SAFETY: passed on from the caller.
    let buffers: &[Iov] = unsafe { lists::bounded(buffers.iov, buffers.count) }?;
    let len = lists::total(buffers.iter().map(|buffer| buffer.len))?;
    Ok(RmaIov { addr, len, key })
}

#[inline(always)]
const fn msg(
    buffers: &Buffers<'_, Iovec>,
    addr: u64,
    remote: &RmaIov,
    context: *mut c_void,
    data: u64,
) -> MsgRma {
    MsgRma {
        msg_iov: buffers.iov,
        desc: buffers.desc,
        iov_count: buffers.count,
        addr,
        rma_iov: remote,
        rma_iov_count: 1,
        context,
        data,
    }
}
