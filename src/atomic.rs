//! Atomic operations on a peer's memory: fi_atomic(3).

#![expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]

use std::ffi::c_void;

use crate::{Context, Desc, Errno, FiAddr, OpFlags, Result};

/// What an atomic does to the target (fi_atomic(3), with libfabric's numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the man page's")]
pub enum Op {
    Min = 0,
    Max,
    Sum,
    Prod,
    Lor,
    Land,
    Bor,
    Band,
    Lxor,
    Bxor,
    AtomicRead,
    AtomicWrite,
    Cswap,
    CswapNe,
    CswapLe,
    CswapLt,
    CswapGe,
    CswapGt,
    Mswap,
    Diff,
}

/// The type of the elements (fi_atomic(3), with libfabric's numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the man page's")]
pub enum Datatype {
    Int8 = 0,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float,
    Double,
    FloatComplex,
    DoubleComplex,
    LongDouble,
    LongDoubleComplex,
    Int128,
    Uint128,
    Float16,
    Bfloat16,
    Float8E4m3,
    Float8E5m2,
}

impl Datatype {
    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Int8 | Self::Uint8 | Self::Float8E4m3 | Self::Float8E5m2 => 1,
            Self::Int16 | Self::Uint16 | Self::Float16 | Self::Bfloat16 => 2,
            Self::Int32 | Self::Uint32 | Self::Float => 4,
            Self::Int64 | Self::Uint64 | Self::Double | Self::FloatComplex => 8,
            Self::DoubleComplex | Self::LongDouble | Self::Int128 | Self::Uint128 => 16,
            Self::LongDoubleComplex => 32,
        }
    }
}

/// Elements in local memory that are read: `struct fi_ioc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ioc {
    /// First element.
    pub addr: *const c_void,
    /// Number of elements.
    pub count: usize,
}

/// Elements in local memory that are written: `struct fi_ioc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IocMut {
    /// First element.
    pub addr: *mut c_void,
    /// Number of elements.
    pub count: usize,
}

/// Elements in a peer's memory: `struct fi_rma_ioc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RmaIoc {
    /// Offset into the region, or virtual address under [`crate::MrMode::VIRT_ADDR`].
    pub addr: u64,
    /// Number of elements.
    pub count: usize,
    /// The region's key.
    pub key: u64,
}

/// One atomic.
#[derive(Clone, Copy, Debug)]
pub struct AtomicMsg<'a> {
    /// The operands.
    pub iov: &'a [Ioc],
    /// Registration descriptors of the operands, or empty.
    pub desc: &'a [Desc],
    /// The peer.
    pub dest: FiAddr,
    /// The targets; as many elements in all as `iov`.
    pub rma_iov: &'a [RmaIoc],
    /// The type of every element.
    pub datatype: Datatype,
    /// What is done.
    pub op: Op,
    /// Comes back with the completion.
    pub context: Context,
    /// Reaches the peer's completion, under [`OpFlags::REMOTE_CQ_DATA`].
    pub data: u64,
}

/// Which of the three families an operation belongs to, for [`Atomic::valid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// fi_atomic: no result.
    Base,
    /// fi_fetch_atomic: the target's earlier value comes back.
    Fetch,
    /// fi_compare_atomic: compare, and the earlier value comes back.
    Compare,
}

/// What a provider answers for one operation and type: `struct fi_atomic_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The most elements of one call.
    pub count: usize,
    /// Size of one element in bytes.
    pub size: usize,
}

/// Atomics on a peer's memory; answers as in [`crate::Msg`].
pub trait Atomic {
    /// Posts an atomic without a result (fi_atomicmsg(3)).
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`], for `msg.iov`.
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Posts an atomic that returns the target's earlier value (fi_fetch_atomicmsg(3)).
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`] for `msg.iov` and [`crate::Msg::recvmsg`] for `result`.
    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let _ = (msg, result, result_desc, flags);
        Err(Errno::NoSys)
    }

    /// Posts a compare-and-something that returns the earlier value (fi_compare_atomicmsg(3)).
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`] for `msg.iov` and `compare`, [`crate::Msg::recvmsg`] for
    /// `result`.
    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        compare_desc: &[Desc],
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let _ = (msg, compare, compare_desc, result, result_desc, flags);
        Err(Errno::NoSys)
    }

    /// Whether this endpoint carries the operation, and how many elements a call may have
    /// (fi_atomicvalid(3) and its kin).
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] where it does not.
    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        let _ = (family, datatype, op);
        Err(Errno::OpNotSupp)
    }
}
