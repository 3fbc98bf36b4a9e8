//! Structures of triggered and deferred operations, which wait for a counter: fi_trigger(3).

use std::ffi::c_void;

use super::endpoint::FidEp;
use super::msg::{Ioc, Msg, MsgAtomic, MsgRma, MsgTagged};
use super::queues::FidCntr;
use crate::declare::structs::c_structs;

c_structs! {
    /// `struct fi_triggered_context` with a threshold.
    TriggeredContext = 32 {
        event_type: u32,
        cntr: *mut FidCntr,
        threshold: usize,
        internal: *mut c_void,
    }
    /// `struct fi_deferred_work`; `op` is any of the structures below.
    DeferredWork = 104 {
        context: [*mut c_void; 8],
        threshold: u64,
        triggering_cntr: *mut FidCntr,
        completion_cntr: *mut FidCntr,
        op_type: u32,
        op: *const c_void,
    }
    /// `struct fi_op_msg`.
    OpMsg = 64 {
        ep: *mut FidEp,
        msg: Msg,
        flags: u64,
    }
    /// `struct fi_op_tagged`.
    OpTagged = 80 {
        ep: *mut FidEp,
        msg: MsgTagged,
        flags: u64,
    }
    /// `struct fi_op_rma`.
    OpRma = 80 {
        ep: *mut FidEp,
        msg: MsgRma,
        flags: u64,
    }
    /// `struct fi_op_atomic`.
    OpAtomic = 88 {
        ep: *mut FidEp,
        msg: MsgAtomic,
        flags: u64,
    }
    /// `struct fi_op_fetch_atomic`, whose result is a `struct fi_msg_fetch`.
    OpFetchAtomic = 112 {
        ep: *mut FidEp,
        msg: MsgAtomic,
        fetch: MsgElements,
        flags: u64,
    }
    /// `struct fi_op_compare_atomic`, whose comparands are a `struct fi_msg_compare`.
    OpCompareAtomic = 136 {
        ep: *mut FidEp,
        msg: MsgAtomic,
        fetch: MsgElements,
        compare: MsgElements,
        flags: u64,
    }
    /// `struct fi_op_cntr`.
    OpCntrChange = 16 {
        cntr: *mut FidCntr,
        value: u64,
    }
    /// `struct fi_msg_fetch` and `struct fi_msg_compare`.
    MsgElements = 24 {
        msg_iov: *const Ioc,
        desc: *const *mut c_void,
        iov_count: usize,
    }
}
