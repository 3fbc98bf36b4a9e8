//! Atomic operations on a peer's memory: fi_atomic(3).

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use std::ffi::c_void;

use crate::{Context, Desc, Errno, FiAddr, OpFlags, Result};

macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident: $($variant:ident)+) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[expect(missing_docs, reason = "the names are the man page's")]
        pub enum $name { $($variant),+ }

        impl $name {
            /// All values, in the order of libfabric's numbers, which begin at 0.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the value with this number, or `None` if no value has it.
            pub fn from_raw(number: u32) -> Option<Self> {
                Self::ALL.get(number as usize).copied()
            }
        }
    };
}

numbered! {
    /// The operation of an atomic (fi_atomic(3), with libfabric's numbers).
    Op: Min Max Sum Prod Lor Land Bor Band Lxor Bxor AtomicRead AtomicWrite
        Cswap CswapNe CswapLe CswapLt CswapGe CswapGt Mswap Diff
}

numbered! {
    /// The type of elements (fi_atomic(3), with libfabric's numbers).
    Datatype: Int8 Uint8 Int16 Uint16 Int32 Uint32 Int64 Uint64
        Float Double FloatComplex DoubleComplex LongDouble LongDoubleComplex
        Int128 Uint128 Float16 Bfloat16 Float8E4m3 Float8E5m2
}

impl Datatype {
    /// Returns the size of one element in bytes.
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

/// A segment of elements in local memory that is read: `struct fi_ioc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Ioc {
    /// First element.
    pub addr: *const c_void,
    /// Number of elements.
    pub count: usize,
}

/// A segment of elements in local memory that is written: `struct fi_ioc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IocMut {
    /// First element.
    pub addr: *mut c_void,
    /// Number of elements.
    pub count: usize,
}

#[expect(unsafe_code, reason = "a description of memory, not an access to it")]
mod thread_safety {
    // SAFETY: the value is an address and a count; code that dereferences it has its own argument.
    unsafe impl Send for super::Ioc {}
    // SAFETY: as above.
    unsafe impl Sync for super::Ioc {}
    // SAFETY: as above.
    unsafe impl Send for super::IocMut {}
    // SAFETY: as above.
    unsafe impl Sync for super::IocMut {}
}

impl Ioc {
    /// Describes `count` elements that begin at `addr`.
    #[inline]
    pub const fn from_raw(addr: *const c_void, count: usize) -> Self {
        Self { addr, count }
    }
}

impl IocMut {
    /// Describes `count` elements that begin at `addr`.
    #[inline]
    pub const fn from_raw(addr: *mut c_void, count: usize) -> Self {
        Self { addr, count }
    }
}

/// A segment of elements in a peer's memory: `struct fi_rma_ioc`.
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

/// An atomic operation (`struct fi_msg_atomic`).
#[derive(Clone, Copy, Debug)]
pub struct AtomicMsg<'a> {
    /// The operands.
    pub iov: &'a [Ioc],
    /// Registration descriptors of the operands, or empty.
    pub desc: &'a [Desc],
    /// The peer.
    pub dest: FiAddr,
    /// The target segments, with as many elements in total as `iov`.
    pub rma_iov: &'a [RmaIoc],
    /// The type of every element.
    pub datatype: Datatype,
    /// The operation.
    pub op: Op,
    /// The context of the completion.
    pub context: Context,
    /// Data for the peer's completion, under [`OpFlags::REMOTE_CQ_DATA`].
    pub data: u64,
}

/// The target of a short form: consecutive elements, and the operation on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The peer.
    pub dest: FiAddr,
    /// The first element, as in [`RmaIoc`].
    pub addr: u64,
    /// The region's key.
    pub key: u64,
    /// The type of every element.
    pub datatype: Datatype,
    /// The operation.
    pub op: Op,
}

/// The three families of atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// fi_atomic(3): no result.
    Base,
    /// fi_fetch_atomic(3): returns the target's earlier value.
    Fetch,
    /// fi_compare_atomic(3): compares, and returns the target's earlier value.
    Compare,
}

/// Limits for one operation and type: `struct fi_atomic_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The maximum number of elements of one call.
    pub count: usize,
    /// Size of one element in bytes.
    pub size: usize,
}

/// Atomics on a peer's memory. The return values have the meanings of those of [`crate::Msg`].
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

    /// Posts an atomic that compares first and returns the target's earlier value
    /// (fi_compare_atomicmsg(3)).
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

    /// Posts an atomic without a result on consecutive elements, with the endpoint's default flags
    /// (fi_atomic(3)). A provider overrides this method to avoid the cost of an [`AtomicMsg`]: over
    /// shm, one element with its completion takes 373 instructions here and 411 by
    /// [`Self::atomicmsg`]. With the earlier value, the numbers are 404 and 458.
    ///
    /// # Safety
    /// As [`Self::atomicmsg`], for `buf`.
    unsafe fn atomic_one(&self, buf: Ioc, desc: Desc, target: &Target, context: Context) -> Result {
        let (iov, desc, rma_iov) = ([buf], [desc], [target.elements(buf.count)]);
        let msg = target.msg(&iov, &desc, &rma_iov, context);
        // SAFETY: passed on from the caller.
        unsafe { self.atomicmsg(&msg, OpFlags::DEFAULT) }
    }

    /// Posts an atomic as [`Self::atomic_one`] does, and returns the target's earlier value
    /// (fi_fetch_atomic(3)).
    ///
    /// # Safety
    /// As [`Self::fetch_atomicmsg`], for `buf` and `result`.
    unsafe fn fetch_atomic_one(
        &self,
        (buf, desc): (Ioc, Desc),
        (result, result_desc): (IocMut, Desc),
        target: &Target,
        context: Context,
    ) -> Result {
        let (iov, desc, rma_iov) = ([buf], [desc], [target.elements(buf.count)]);
        let msg = target.msg(&iov, &desc, &rma_iov, context);
        // SAFETY: passed on from the caller.
        unsafe { self.fetch_atomicmsg(&msg, &[result], &[result_desc], OpFlags::DEFAULT) }
    }

    /// Posts an atomic without a result, with a copy of the operands in `buf`
    /// (fi_inject_atomic(3)). An inject has no completion at the initiator.
    ///
    /// # Errors
    /// [`Errno::MsgSize`] for more than `tx_attr.inject_size` bytes; [`Errno::Inval`] when `buf` does
    /// not hold whole elements; [`Errno::Again`] when a queue is full.
    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        let _ = (buf, target);
        Err(Errno::NoSys)
    }

    /// Queries whether this endpoint supports the operation, and its limits (fi_atomicvalid(3),
    /// fi_fetch_atomicvalid(3), fi_compare_atomicvalid(3)).
    ///
    /// # Errors
    /// [`Errno::OpNotSupp`] for an unsupported operation.
    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        let _ = (family, datatype, op);
        Err(Errno::OpNotSupp)
    }
}

/// Short forms of [`Atomic`], under the man page's names, with the endpoint's default flags.
///
/// Methods whose names end in `v` take lists of local segments. The target of every method is one
/// segment.
pub trait AtomicExt: Atomic {
    /// fi_atomic(3).
    ///
    /// # Safety
    /// As [`Atomic::atomicmsg`].
    #[inline]
    unsafe fn atomic(&self, buf: Ioc, desc: Desc, target: &Target, context: Context) -> Result {
        // SAFETY: the caller makes the promise of `atomicmsg` for `buf`.
        unsafe { self.atomic_one(buf, desc, target, context) }
    }

    /// fi_atomicv(3).
    ///
    /// # Safety
    /// As [`Atomic::atomicmsg`].
    #[inline]
    unsafe fn atomicv(
        &self,
        iov: &[Ioc],
        desc: &[Desc],
        target: &Target,
        context: Context,
    ) -> Result {
        let rma_iov = [target.elements(count_of(iov))];
        let msg = target.msg(iov, desc, &rma_iov, context);
        // SAFETY: the caller makes the promise of `atomicmsg` for every element of `iov`.
        unsafe { self.atomicmsg(&msg, OpFlags::DEFAULT) }
    }

    /// fi_fetch_atomic(3).
    ///
    /// # Safety
    /// As [`Atomic::fetch_atomicmsg`].
    #[inline]
    unsafe fn fetch_atomic(
        &self,
        buf: (Ioc, Desc),
        result: (IocMut, Desc),
        target: &Target,
        context: Context,
    ) -> Result {
        // SAFETY: the caller makes the promise of `fetch_atomicmsg` for `buf` and `result`.
        unsafe { self.fetch_atomic_one(buf, result, target, context) }
    }

    /// fi_fetch_atomicv(3).
    ///
    /// # Safety
    /// As [`Atomic::fetch_atomicmsg`].
    #[inline]
    unsafe fn fetch_atomicv(
        &self,
        (iov, desc): (&[Ioc], &[Desc]),
        (result, result_desc): (&[IocMut], &[Desc]),
        target: &Target,
        context: Context,
    ) -> Result {
        let rma_iov = [target.elements(count_of(iov))];
        let msg = target.msg(iov, desc, &rma_iov, context);
        // SAFETY: the caller makes the promise of `fetch_atomicmsg` for both lists.
        unsafe { self.fetch_atomicmsg(&msg, result, result_desc, OpFlags::DEFAULT) }
    }

    /// fi_compare_atomic(3).
    ///
    /// # Safety
    /// As [`Atomic::compare_atomicmsg`].
    #[inline]
    unsafe fn compare_atomic(
        &self,
        buf: (Ioc, Desc),
        compare: (Ioc, Desc),
        result: (IocMut, Desc),
        target: &Target,
        context: Context,
    ) -> Result {
        let (iov, desc) = ([buf.0], [buf.1]);
        let (compare, compare_desc) = ([compare.0], [compare.1]);
        let (result, result_desc) = ([result.0], [result.1]);
        let (buf, compare) = ((&iov[..], &desc[..]), (&compare[..], &compare_desc[..]));
        // SAFETY: the caller makes the promise of `compare_atomicmsg` for all three.
        unsafe { self.compare_atomicv(buf, compare, (&result, &result_desc), target, context) }
    }

    /// fi_compare_atomicv(3).
    ///
    /// # Safety
    /// As [`Atomic::compare_atomicmsg`].
    #[inline]
    unsafe fn compare_atomicv(
        &self,
        (iov, desc): (&[Ioc], &[Desc]),
        (compare, compare_desc): (&[Ioc], &[Desc]),
        (result, result_desc): (&[IocMut], &[Desc]),
        target: &Target,
        context: Context,
    ) -> Result {
        let rma_iov = [target.elements(count_of(iov))];
        let msg = target.msg(iov, desc, &rma_iov, context);
        let flags = OpFlags::DEFAULT;
        // SAFETY: the caller makes the promise of `compare_atomicmsg` for all three lists.
        unsafe { self.compare_atomicmsg(&msg, compare, compare_desc, result, result_desc, flags) }
    }
}

impl<T: Atomic + ?Sized> AtomicExt for T {}

impl Target {
    /// Returns the target segment, with `count` elements.
    #[inline]
    pub(crate) fn elements(&self, count: usize) -> RmaIoc {
        RmaIoc {
            addr: self.addr,
            count,
            key: self.key,
        }
    }

    #[inline]
    pub(crate) fn msg<'a>(
        &self,
        iov: &'a [Ioc],
        desc: &'a [Desc],
        rma_iov: &'a [RmaIoc],
        context: Context,
    ) -> AtomicMsg<'a> {
        AtomicMsg {
            iov,
            desc,
            dest: self.dest,
            rma_iov,
            datatype: self.datatype,
            op: self.op,
            context,
            data: 0,
        }
    }
}

/// The total number of elements.
#[inline]
fn count_of(iov: &[Ioc]) -> usize {
    iov.iter().fold(0, |sum, ioc| ioc.count.saturating_add(sum))
}

const _: () = assert!(size_of::<Ioc>() == 16);
const _: () = assert!(size_of::<RmaIoc>() == 24);
const _: () = assert!(Op::Diff as u32 == 19 && Op::ALL.len() == 20);
const _: () = assert!(Datatype::Float8E5m2 as u32 == 19 && Datatype::ALL.len() == 20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_types_have_the_numbers_of_the_man_page() {
        for (number, op) in (0..).zip(Op::ALL) {
            assert_eq!((*op as u32, Op::from_raw(number)), (number, Some(*op)));
        }
        for (number, datatype) in (0..).zip(Datatype::ALL) {
            assert_eq!(*datatype as u32, number);
            assert_eq!(Datatype::from_raw(number), Some(*datatype));
        }
        assert_eq!((Op::from_raw(20), Datatype::from_raw(20)), (None, None));
        assert_eq!((Op::Cswap as u32, Datatype::Int128 as u32), (12, 14));
    }
}
