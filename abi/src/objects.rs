//! Fabrics, domains, endpoints, address vectors and memory: their handles and tables.

use std::ffi::{c_char, c_int, c_void};

use crate::{
    AtomicAttr, CntrAttr, CqAttr, EqAttr, FiAddr, Fid, FidCntr, FidCq, FidEq, FidPoll, FidWait,
    Info, Iovec, OpsAtomic, OpsAvSet, OpsCm, OpsCollective, OpsEp, OpsMsg, OpsRma, OpsTagged,
    PollAttr, RxAttr, TxAttr, WaitAttr, c_handles, c_structs, c_tables,
};

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
    /// `struct fid_ep`.
    FidEp = 80 {
        ops: OpsEp,
        cm: OpsCm,
        msg: OpsMsg,
        rma: OpsRma,
        tagged: OpsTagged,
        atomic: OpsAtomic,
        collective: OpsCollective,
    }
    /// `struct fid_pep`.
    FidPep = 40 {
        ops: OpsEp,
        cm: OpsCm,
    }
    /// `struct fid_stx`.
    FidStx = 32 {
        ops: OpsEp,
    }
    /// `struct fid_av`.
    FidAv = 32 {
        ops: OpsAv,
    }
    /// `struct fid_av_set`.
    FidAvSet = 32 {
        ops: OpsAvSet,
    }
    /// `struct fid_mr`.
    FidMr = 40 {
        ; mem_desc: *mut c_void = std::ptr::null_mut(),
        key: u64 = u64::MAX,
    }
    /// `struct fid_mc`.
    FidMc = 32 {
        ; fi_addr: FiAddr = FiAddr::MAX,
    }
}

c_structs! {
    /// `struct fi_av_attr`; `av_type` is its `type`.
    AvAttr = 48 {
        av_type: u32,
        rx_ctx_bits: c_int,
        count: usize,
        ep_per_node: usize,
        name: *const c_char,
        map_addr: *mut c_void,
        flags: u64,
    }
    /// `struct fi_av_set_attr`.
    AvSetAttr = 56 {
        count: usize,
        start_addr: FiAddr,
        end_addr: FiAddr,
        stride: u64,
        comm_key_size: usize,
        comm_key: *mut u8,
        flags: u64,
    }
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
    /// `struct fi_ops_av`.
    OpsAv = 96 {
        insert(
            av: *mut FidAv, addr: *const c_void, count: usize, fi_addr: *mut FiAddr, flags: u64,
            context: Context,
        ) -> c_int,
        insertsvc(
            av: *mut FidAv, node: *const c_char, service: *const c_char, fi_addr: *mut FiAddr,
            flags: u64, context: Context,
        ) -> c_int,
        insertsym(
            av: *mut FidAv, node: *const c_char, nodecnt: usize, service: *const c_char,
            svccnt: usize, fi_addr: *mut FiAddr, flags: u64, context: Context,
        ) -> c_int,
        remove(av: *mut FidAv, fi_addr: *mut FiAddr, count: usize, flags: u64) -> c_int,
        lookup(av: *mut FidAv, fi_addr: FiAddr, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        straddr(av: *mut FidAv, addr: *const c_void, buf: *mut c_char, len: *mut usize)
            -> *const c_char,
        av_set(
            av: *mut FidAv, attr: *mut AvSetAttr, av_set: *mut *mut FidAvSet, context: Context,
        ) -> c_int,
        insert_auth_key(
            av: *mut FidAv, auth_key: *const c_void, size: usize, fi_addr: *mut FiAddr, flags: u64,
        ) -> c_int,
        lookup_auth_key(av: *mut FidAv, fi_addr: FiAddr, auth_key: *mut c_void, size: *mut usize)
            -> c_int,
        set_user_id(av: *mut FidAv, fi_addr: FiAddr, user_id: FiAddr, flags: u64) -> c_int,
        lookup2(
            av: *mut FidAv, fi_addr: FiAddr, addr: *mut c_void, addrlen: *mut usize, flags: u64,
        ) -> c_int,
    }
}
