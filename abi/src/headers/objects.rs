//! Fabrics, domains and memory: their handles and tables.

use std::ffi::{c_int, c_void};

use super::av::{AvAttr, FidAv};
use super::endpoint::{FidEp, FidPep, FidStx};
use super::fid::Fid;
use super::info::{Info, RxAttr, TxAttr};
use super::msg::{AtomicAttr, Iovec};
use super::queues::{
    CntrAttr, CqAttr, EqAttr, FidCntr, FidCq, FidEq, FidPoll, FidWait, PollAttr, WaitAttr,
};
use crate::declare::handle::c_handles;
use crate::declare::structs::c_structs;
use crate::declare::table::c_tables;

c_handles! {
    /// `struct fid_fabric`.
    FidFabric = 40 {
        ops: OpsFabric,
        ; api_version: u32 = 0,
    }
    /// `struct fid_domain`.
    FidDomain = 40 {
        ops: OpsDomain,
        mr: OpsMr,
    }
    /// `struct fid_mr`.
    FidMr = 40 {
        ; mem_desc: *mut c_void = std::ptr::null_mut(),
        key: u64 = u64::MAX,
    }
}

c_structs! {
    /// `struct fi_mr_attr`.
    MrAttr = 112 {
        mr_iov: *const Iovec,
        iov_count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        context: *mut c_void,
        auth_key_size: usize,
        auth_key: *mut u8,
        iface: u32,
        device: u64,
        hmem_data: *mut c_void,
        page_size: usize,
        base_mr: *const FidMr,
        sub_mr_cnt: usize,
    }
    /// `struct fi_mr_modify`.
    MrModify = 120 {
        flags: u64,
        attr: MrAttr,
    }
}

type Context = *mut c_void;

c_tables! {
    /// `struct fi_ops_fabric`.
    OpsFabric = 56 {
        domain(fabric: *mut FidFabric, info: *mut Info, dom: *mut *mut FidDomain, context: Context)
            -> c_int,
        passive_ep(fabric: *mut FidFabric, info: *mut Info, pep: *mut *mut FidPep, context: Context)
            -> c_int,
        eq_open(fabric: *mut FidFabric, attr: *mut EqAttr, eq: *mut *mut FidEq, context: Context)
            -> c_int,
        wait_open(fabric: *mut FidFabric, attr: *mut WaitAttr, waitset: *mut *mut FidWait) -> c_int,
        trywait(fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int,
        domain2(
            fabric: *mut FidFabric, info: *mut Info, dom: *mut *mut FidDomain, flags: u64,
            context: Context,
        ) -> c_int,
    }
    /// `struct fi_ops_domain`.
    OpsDomain = 104 {
        av_open(domain: *mut FidDomain, attr: *mut AvAttr, av: *mut *mut FidAv, context: Context)
            -> c_int,
        cq_open(domain: *mut FidDomain, attr: *mut CqAttr, cq: *mut *mut FidCq, context: Context)
            -> c_int,
        endpoint(domain: *mut FidDomain, info: *mut Info, ep: *mut *mut FidEp, context: Context)
            -> c_int,
        scalable_ep(domain: *mut FidDomain, info: *mut Info, sep: *mut *mut FidEp, context: Context)
            -> c_int,
        cntr_open(
            domain: *mut FidDomain, attr: *mut CntrAttr, cntr: *mut *mut FidCntr, context: Context,
        ) -> c_int,
        poll_open(domain: *mut FidDomain, attr: *mut PollAttr, pollset: *mut *mut FidPoll) -> c_int,
        stx_ctx(domain: *mut FidDomain, attr: *mut TxAttr, stx: *mut *mut FidStx, context: Context)
            -> c_int,
        srx_ctx(domain: *mut FidDomain, attr: *mut RxAttr, rx_ep: *mut *mut FidEp, context: Context)
            -> c_int,
        query_atomic(
            domain: *mut FidDomain, datatype: u32, op: u32, attr: *mut AtomicAttr, flags: u64,
        ) -> c_int,
        query_collective(domain: *mut FidDomain, coll: u32, attr: *mut c_void, flags: u64) -> c_int,
        endpoint2(
            domain: *mut FidDomain, info: *mut Info, ep: *mut *mut FidEp, flags: u64,
            context: Context,
        ) -> c_int,
        xpu_ctx(
            domain: *mut FidDomain, attr: *mut c_void, ctx: *mut *mut c_void, context: Context,
        ) -> c_int,
    }
    /// `struct fi_ops_mr`.
    OpsMr = 32 {
        reg(
            fid: *mut Fid, buf: *const c_void, len: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut FidMr, context: Context,
        ) -> c_int,
        regv(
            fid: *mut Fid, iov: *const Iovec, count: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut FidMr, context: Context,
        ) -> c_int,
        regattr(fid: *mut Fid, attr: *const MrAttr, flags: u64, mr: *mut *mut FidMr) -> c_int,
    }
}
