//! Queues and counters: their handles, tables and entries.

use std::ffi::{c_char, c_int, c_void};

use super::av::FiAddr;
use super::fid::Fid;
use super::info::Info;
use crate::declare::handle::c_handles;
use crate::declare::structs::c_structs;
use crate::declare::table::c_tables;

c_handles! {
    /// `struct fid_cq`.
    FidCq = 32 {
        ops: OpsCq,
    }
    /// `struct fid_cntr`.
    FidCntr = 32 {
        ops: OpsCntr,
    }
    /// `struct fid_eq`.
    FidEq = 32 {
        ops: OpsEq,
    }
    /// `struct fid_wait`.
    FidWait = 32 {
        ops: OpsWait,
    }
    /// `struct fid_poll`.
    FidPoll = 32 {
        ops: OpsPoll,
    }
}

c_structs! {
    /// `struct fi_wait_attr`.
    WaitAttr = 16 {
        wait_obj: u32,
        flags: u64,
    }
    /// `struct fi_poll_attr`.
    PollAttr = 8 {
        flags: u64,
    }
    /// `struct fi_cq_attr`.
    CqAttr = 48 {
        size: usize,
        flags: u64,
        format: u32,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_cond: u32,
        wait_set: *mut c_void,
        xpu_ctx: *mut c_void,
    }
    /// `struct fi_cq_err_entry`.
    CqErrEntry = 88 {
        op_context: *mut c_void,
        flags: u64,
        len: usize,
        buf: *mut c_void,
        data: u64,
        tag: u64,
        olen: usize,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
        src_addr: FiAddr,
    }
    /// `struct fi_cntr_attr`.
    CntrAttr = 32 {
        events: u32,
        wait_obj: u32,
        wait_set: *mut c_void,
        flags: u64,
        xpu_ctx: *mut c_void,
    }
    /// `struct fi_eq_attr`.
    EqAttr = 32 {
        size: usize,
        flags: u64,
        wait_obj: u32,
        signaling_vector: c_int,
        wait_set: *mut c_void,
    }
    /// `struct fi_eq_entry`.
    EqEntry = 24 {
        fid: *mut Fid,
        context: *mut c_void,
        data: u64,
    }
    /// `struct fi_eq_cm_entry`, up to its data.
    EqCmEntry = 16 {
        fid: *mut Fid,
        info: *mut Info,
    }
    /// `struct fi_eq_err_entry`.
    EqErrEntry = 48 {
        fid: *mut Fid,
        context: *mut c_void,
        data: u64,
        err: c_int,
        prov_errno: c_int,
        err_data: *mut c_void,
        err_data_size: usize,
    }
    /// `struct fi_param`; `param_type` is its `type`.
    Param = 32 {
        name: *const c_char,
        param_type: u32,
        help_string: *const c_char,
        value: *const c_char,
    }
}

c_tables! {
    /// `struct fi_ops_wait`.
    OpsWait = 16 {
        wait(waitset: *mut FidWait, timeout: c_int) -> c_int,
    }
    /// `struct fi_ops_poll`.
    OpsPoll = 32 {
        poll(pollset: *mut FidPoll, context: *mut *mut c_void, count: c_int) -> c_int,
        poll_add(pollset: *mut FidPoll, event_fid: *mut Fid, flags: u64) -> c_int,
        poll_del(pollset: *mut FidPoll, event_fid: *mut Fid, flags: u64) -> c_int,
    }
    /// `struct fi_ops_cq`.
    OpsCq = 72 {
        read(cq: *mut FidCq, buf: *mut c_void, count: usize) -> isize,
        readfrom(cq: *mut FidCq, buf: *mut c_void, count: usize, src: *mut FiAddr) -> isize,
        readerr(cq: *mut FidCq, buf: *mut CqErrEntry, flags: u64) -> isize,
        sread(
            cq: *mut FidCq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int,
        ) -> isize,
        sreadfrom(
            cq: *mut FidCq, buf: *mut c_void, count: usize, src: *mut FiAddr, cond: *const c_void,
            timeout: c_int,
        ) -> isize,
        signal(cq: *mut FidCq) -> c_int,
        strerror(
            cq: *mut FidCq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize,
        ) -> *const c_char,
        export_xpu(cq: *mut FidCq, flags: u64, attr: *mut c_void) -> c_int,
    }
    /// `struct fi_ops_cntr`.
    OpsCntr = 72 {
        read(cntr: *mut FidCntr) -> u64,
        readerr(cntr: *mut FidCntr) -> u64,
        add(cntr: *mut FidCntr, value: u64) -> c_int,
        set(cntr: *mut FidCntr, value: u64) -> c_int,
        wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int,
        adderr(cntr: *mut FidCntr, value: u64) -> c_int,
        seterr(cntr: *mut FidCntr, value: u64) -> c_int,
        export_xpu(cntr: *mut FidCntr, flags: u64, attr: *mut c_void) -> c_int,
    }
    /// `struct fi_ops_eq`.
    OpsEq = 48 {
        read(eq: *mut FidEq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize,
        readerr(eq: *mut FidEq, buf: *mut EqErrEntry, flags: u64) -> isize,
        write(eq: *mut FidEq, event: u32, buf: *const c_void, len: usize, flags: u64) -> isize,
        sread(
            eq: *mut FidEq, event: *mut u32, buf: *mut c_void, len: usize, timeout: c_int,
            flags: u64,
        ) -> isize,
        strerror(
            eq: *mut FidEq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize,
        ) -> *const c_char,
    }
}
