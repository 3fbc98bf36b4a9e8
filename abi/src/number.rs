//! Numeric constants of the headers that have no type of their own in the object model.

#![expect(missing_docs, reason = "the names are the man pages'")]

use std::ffi::c_int;

/// `FI_VERSION`: encodes a version as one number.
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// Commands of `fi_control`.
pub mod control {
    use super::c_int;

    pub const GETOPSFLAG: c_int = 2;
    pub const SETOPSFLAG: c_int = 3;
    pub const ALIAS: c_int = 4;
    pub const GETWAIT: c_int = 5;
    pub const ENABLE: c_int = 6;
    pub const BACKLOG: c_int = 7;
    pub const GET_RAW_MR: c_int = 8;
    pub const MAP_RAW_MR: c_int = 9;
    pub const UNMAP_KEY: c_int = 10;
    pub const QUEUE_WORK: c_int = 11;
    pub const CANCEL_WORK: c_int = 12;
    pub const FLUSH_WORK: c_int = 13;
    pub const REFRESH: c_int = 14;
    pub const DUP: c_int = 15;
    pub const GETWAITOBJ: c_int = 16;
}

/// Flags of `fi_ep_bind` that are not operation flags.
pub mod bind {
    pub const SELECTIVE_COMPLETION: u64 = 1 << 59;
}

/// Events of `fi_eq_read`.
pub mod event {
    pub const NOTIFY: u32 = 0;
    pub const CONNREQ: u32 = 1;
    pub const CONNECTED: u32 = 2;
    pub const SHUTDOWN: u32 = 3;
    pub const MR_COMPLETE: u32 = 4;
    pub const AV_COMPLETE: u32 = 5;
    pub const JOIN_COMPLETE: u32 = 6;
}

/// `enum fi_cq_format`.
pub mod cq_format {
    pub const UNSPEC: u32 = 0;
    pub const CONTEXT: u32 = 1;
    pub const MSG: u32 = 2;
    pub const DATA: u32 = 3;
    pub const TAGGED: u32 = 4;
}

/// `enum fi_op_type`.
pub mod work {
    pub const RECV: u32 = 0;
    pub const SEND: u32 = 1;
    pub const TRECV: u32 = 2;
    pub const TSEND: u32 = 3;
    pub const READ: u32 = 4;
    pub const WRITE: u32 = 5;
    pub const ATOMIC: u32 = 6;
    pub const FETCH_ATOMIC: u32 = 7;
    pub const COMPARE_ATOMIC: u32 = 8;
    pub const CNTR_SET: u32 = 9;
    pub const CNTR_ADD: u32 = 10;
}

/// `FI_TRIGGER_THRESHOLD`.
pub const TRIGGER_THRESHOLD: u32 = 0;

/// `FI_OPT_*` that the object model lacks, of level [`option::ENDPOINT`].
pub mod option {
    use super::c_int;

    pub const ENDPOINT: c_int = 0;
    pub const TX_SIZE: c_int = 6;
    pub const RX_SIZE: c_int = 7;
    pub const FI_HMEM_P2P: c_int = 8;
    pub const CUDA_API_PERMITTED: c_int = 10;
    pub const SHARED_MEMORY_PERMITTED: c_int = 11;
}

/// Flags of address vectors.
pub mod av {
    pub const SYMMETRIC: u64 = 1 << 59;
    pub const SYNC_ERR: u64 = 1 << 58;
    pub const UNIVERSE: u64 = 1 << 57;
    /// `FI_BARRIER_SET` to `FI_GATHER_SET`.
    pub const COLLECTIVE_SETS: u64 = 0x1ff << 40;
}

/// Flags of `fi_query_atomic`.
pub mod atomic {
    pub const FETCH: u64 = 1 << 58;
    pub const COMPARE: u64 = 1 << 59;
}

/// `enum fi_type`: the kinds of data that `fi_tostr` prints.
pub mod kind {
    pub const INFO: u32 = 0;
    pub const EP_TYPE: u32 = 1;
    pub const CAPS: u32 = 2;
    pub const OP_FLAGS: u32 = 3;
    pub const ADDR_FORMAT: u32 = 4;
    pub const TX_ATTR: u32 = 5;
    pub const RX_ATTR: u32 = 6;
    pub const EP_ATTR: u32 = 7;
    pub const DOMAIN_ATTR: u32 = 8;
    pub const FABRIC_ATTR: u32 = 9;
    pub const THREADING: u32 = 10;
    pub const PROGRESS: u32 = 11;
    pub const PROTOCOL: u32 = 12;
    pub const MSG_ORDER: u32 = 13;
    pub const MODE: u32 = 14;
    pub const AV_TYPE: u32 = 15;
    pub const ATOMIC_TYPE: u32 = 16;
    pub const ATOMIC_OP: u32 = 17;
    pub const VERSION: u32 = 18;
    pub const EQ_EVENT: u32 = 19;
    pub const CQ_EVENT_FLAGS: u32 = 20;
    pub const MR_MODE: u32 = 21;
    pub const OP_TYPE: u32 = 22;
    pub const FID: u32 = 23;
    pub const COLLECTIVE_OP: u32 = 24;
    pub const HMEM_IFACE: u32 = 25;
    pub const CQ_FORMAT: u32 = 26;
    pub const LOG_LEVEL: u32 = 27;
    pub const LOG_SUBSYS: u32 = 28;
    pub const AV_ATTR: u32 = 29;
    pub const CQ_ATTR: u32 = 30;
    pub const MR_ATTR: u32 = 31;
    pub const CNTR_ATTR: u32 = 32;
    pub const CQ_ERR_ENTRY: u32 = 33;
    pub const CQ_WAIT_COND: u32 = 34;
    pub const WAIT_OBJ: u32 = 35;
}

/// `enum fi_param_type`.
pub mod param {
    pub const STRING: u32 = 0;
    pub const INT: u32 = 1;
    pub const BOOL: u32 = 2;
    pub const SIZE_T: u32 = 3;
}

/// `enum fi_link_state`.
pub mod bus {
    pub const UNSPEC: u32 = 0;
    pub const PCI: u32 = 1;
}

pub mod link {
    pub const DOWN: u32 = 1;
    pub const UP: u32 = 2;
}
