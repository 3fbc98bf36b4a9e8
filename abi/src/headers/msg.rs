//! Messages that are posted to endpoints.

use std::ffi::c_void;

use super::av::FiAddr;
use crate::declare::structs::c_structs;

pub use libc::iovec as Iovec;

c_structs! {
    /// `struct fi_ioc`.
    Ioc = 16 {
        addr: *mut c_void,
        count: usize,
    }
    /// `struct fi_rma_iov`.
    RmaIov = 24 {
        addr: u64,
        len: usize,
        key: u64,
    }
    /// `struct fi_rma_ioc`.
    RmaIoc = 24 {
        addr: u64,
        count: usize,
        key: u64,
    }
    /// `struct fi_msg`.
    Msg = 48 {
        msg_iov: *const Iovec,
        desc: *const *mut c_void,
        iov_count: usize,
        addr: FiAddr,
        context: *mut c_void,
        data: u64,
    }
    /// `struct fi_msg_tagged`.
    MsgTagged = 64 {
        msg_iov: *const Iovec,
        desc: *const *mut c_void,
        iov_count: usize,
        addr: FiAddr,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
        data: u64,
    }
    /// `struct fi_msg_rma`.
    MsgRma = 64 {
        msg_iov: *const Iovec,
        desc: *const *mut c_void,
        iov_count: usize,
        addr: FiAddr,
        rma_iov: *const RmaIov,
        rma_iov_count: usize,
        context: *mut c_void,
        data: u64,
    }
    /// `struct fi_msg_atomic`.
    MsgAtomic = 72 {
        msg_iov: *const Ioc,
        desc: *const *mut c_void,
        iov_count: usize,
        addr: FiAddr,
        rma_iov: *const RmaIoc,
        rma_iov_count: usize,
        datatype: u32,
        op: u32,
        context: *mut c_void,
        data: u64,
    }
    /// `struct fi_atomic_attr`.
    AtomicAttr = 16 {
        count: usize,
        size: usize,
    }
    /// `struct fi_collective_attr`.
    CollectiveAttr = 40 {
        op: u32,
        datatype: u32,
        datatype_attr: AtomicAttr,
        max_members: usize,
        mode: u64,
    }
    /// `struct fi_msg_collective`.
    MsgCollective = 64 {
        msg_iov: *const Ioc,
        desc: *const *mut c_void,
        iov_count: usize,
        coll_addr: FiAddr,
        root_addr: FiAddr,
        coll: u32,
        datatype: u32,
        op: u32,
        context: *mut c_void,
    }
}
