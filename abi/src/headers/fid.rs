//! `struct fid`, with which every object begins.

use std::ffi::{c_char, c_int, c_void};

use crate::declare::structs::c_structs;
use crate::declare::table::c_tables;

c_structs! {
    /// `struct fid`.
    Fid = 24 {
        fclass: usize,
        context: *mut c_void,
        ops: *const Ops,
    }
    /// `struct fi_alias`.
    Alias = 16 {
        fid: *mut *mut Fid,
        flags: u64,
    }
    /// `struct fi_fid_var`.
    FidVar = 16 {
        name: c_int,
        val: *mut c_void,
    }
    /// `struct fi_mr_raw_attr`.
    MrRawAttr = 32 {
        flags: u64,
        base_addr: *mut u64,
        raw_key: *mut u8,
        key_size: *mut usize,
    }
    /// `struct fi_mr_map_raw`.
    MrMapRaw = 40 {
        flags: u64,
        base_addr: u64,
        raw_key: *mut u8,
        key_size: usize,
        key: *mut u64,
    }
}

c_tables! {
    /// `struct fi_ops`.
    Ops = 56 {
        close(fid: *mut Fid) -> c_int,
        bind(fid: *mut Fid, bfid: *mut Fid, flags: u64) -> c_int,
        control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int,
        ops_open(
            fid: *mut Fid, name: *const c_char, flags: u64, ops: *mut *mut c_void,
            context: *mut c_void,
        ) -> c_int,
        tostr(fid: *const Fid, buf: *mut c_char, len: usize) -> c_int,
        ops_set(
            fid: *mut Fid, name: *const c_char, flags: u64, ops: *mut c_void, context: *mut c_void,
        ) -> c_int,
    }
}

/// `FI_CLASS_*`.
#[expect(missing_docs, reason = "the names are the man pages'")]
pub mod fclass {
    pub const UNSPEC: usize = 0;
    pub const FABRIC: usize = 1;
    pub const DOMAIN: usize = 2;
    pub const EP: usize = 3;
    pub const SEP: usize = 4;
    pub const RX_CTX: usize = 5;
    pub const SRX_CTX: usize = 6;
    pub const TX_CTX: usize = 7;
    pub const STX_CTX: usize = 8;
    pub const PEP: usize = 9;
    pub const AV: usize = 11;
    pub const MR: usize = 12;
    pub const EQ: usize = 13;
    pub const CQ: usize = 14;
    pub const CNTR: usize = 15;
    pub const WAIT: usize = 16;
    pub const POLL: usize = 17;
    pub const CONNREQ: usize = 18;
    pub const MC: usize = 19;
    pub const NIC: usize = 20;
    pub const AV_SET: usize = 21;
}
