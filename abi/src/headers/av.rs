//! Address vectors and sets of their members: handles, tables and attributes.

use std::ffi::{c_char, c_int, c_void};

use crate::declare::handle::c_handles;
use crate::declare::structs::c_structs;
use crate::declare::table::c_tables;

/// `fi_addr_t`.
pub type FiAddr = u64;

c_handles! {
    /// `struct fid_av`.
    FidAv = 32 {
        ops: OpsAv,
    }
    /// `struct fid_av_set`.
    FidAvSet = 32 {
        ops: OpsAvSet,
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
    /// `struct fi_collective_addr`.
    CollectiveAddr = 16 {
        set: *const FidAvSet,
        coll_addr: FiAddr,
    }
}

type Context = *mut c_void;

c_tables! {
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
    /// `struct fi_ops_av_set`.
    OpsAvSet = 56 {
        set_union(dst: *mut FidAvSet, src: *const FidAvSet) -> c_int,
        intersect(dst: *mut FidAvSet, src: *const FidAvSet) -> c_int,
        diff(dst: *mut FidAvSet, src: *const FidAvSet) -> c_int,
        insert(set: *mut FidAvSet, addr: FiAddr) -> c_int,
        remove(set: *mut FidAvSet, addr: FiAddr) -> c_int,
        addr(set: *mut FidAvSet, coll: *mut FiAddr) -> c_int,
    }
}
