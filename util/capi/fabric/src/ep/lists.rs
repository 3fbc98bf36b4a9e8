//! Lists and words of C, as the object model has them.

#![expect(unsafe_code, reason = "lists of C")]

use std::ffi::c_void;

use selvedge::atomic::{Ioc, IocMut, RmaIoc};
use selvedge::rma::RmaIov;
use selvedge::{Context, Desc, Errno, Iov, IovMut, OpFlags, Result};
use selvedge_abi as abi;

use crate::pointer::{list, optional};

/// Pieces that no provider takes as many of: a list that is said to be longer is not looked at.
const MAX_SEGMENTS: usize = 64;
/// Pieces of a list that are looked at: whoever takes more looks at them itself.
const CHECKED_SEGMENTS: usize = 4;

/// A piece of memory.
pub(super) trait Segment {
    /// Whether it is no memory: bytes that are nowhere, or room for more than there can be.
    fn is_missing(&self) -> bool;
}

impl Segment for Iov {
    #[inline(always)]
    fn is_missing(&self) -> bool {
        self.base.is_null() && self.len > 0
    }
}

impl Segment for IovMut {
    #[inline(always)]
    fn is_missing(&self) -> bool {
        self.base.is_null() && self.len > 0 || self.len > isize::MAX.cast_unsigned()
    }
}

impl Segment for Ioc {
    #[inline(always)]
    fn is_missing(&self) -> bool {
        self.addr.is_null() && self.count > 0
    }
}

impl Segment for IocMut {
    #[inline(always)]
    fn is_missing(&self) -> bool {
        self.addr.is_null() && self.count > 0
    }
}

/// Checks that pieces that have bytes say where, and how many. What is too long to be sent has an
/// error of the provider's.
///
/// # Errors
/// [`Errno::Inval`] for one that is no memory.
#[inline(always)]
pub(super) fn checked<S: Segment>(segments: &[S]) -> Result<&[S]> {
    match segments
        .iter()
        .take(CHECKED_SEGMENTS)
        .any(Segment::is_missing)
    {
        true => Err(Errno::Inval),
        false => Ok(segments),
    }
}

/// As [`named`], for receives: where all pieces are NULL there is no room, as in [`room`].
#[inline(always)]
pub(super) fn checked_or_empty(segments: &[IovMut]) -> Result<&[IovMut]> {
    match checked(segments) {
        Err(_) if segments.iter().all(|segment| segment.base.is_null()) => Ok(&[]),
        checked => checked,
    }
}

/// The room of a receive. Programs post NULL with a length where nothing will come: that is no room,
/// and a message with bytes is truncated to none.
#[inline(always)]
pub(super) fn receive_buffer(buf: *mut c_void, len: usize) -> abi::Iovec {
    abi::Iovec {
        iov_base: buf,
        iov_len: if buf.is_null() { 0 } else { len },
    }
}

/// A structure of C that is laid out as a `T`.
///
/// # Safety
/// For implementors: so it is, and any values of its members are a `T`.
pub(super) unsafe trait LaidOutAs<T> {}

// SAFETY: an address and a length, which anything may be.
unsafe impl LaidOutAs<Iov> for abi::Iovec {}
// SAFETY: as above.
unsafe impl LaidOutAs<IovMut> for abi::Iovec {}
// SAFETY: an address and a count, which anything may be.
unsafe impl LaidOutAs<Ioc> for abi::Ioc {}
// SAFETY: as above.
unsafe impl LaidOutAs<IocMut> for abi::Ioc {}
// SAFETY: three numbers.
unsafe impl LaidOutAs<RmaIov> for abi::RmaIov {}
// SAFETY: as above.
unsafe impl LaidOutAs<RmaIoc> for abi::RmaIoc {}

/// A list.
///
/// # Errors
/// As [`list`]; [`Errno::Inval`] for more than [`MOST`].
///
/// # Safety
/// As [`list`].
#[inline(always)]
pub(super) unsafe fn bounded<'a, C: LaidOutAs<T>, T>(
    at: *const C,
    count: usize,
) -> Result<&'a [T]> {
    if count > MAX_SEGMENTS {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller; both are laid out in the same way.
    unsafe { list(at.cast(), count) }
}

/// The length of a list, which is that of the memory at a peer.
///
/// # Errors
/// [`Errno::Inval`] for more than memory can hold.
#[inline(always)]
pub(super) fn total(mut lens: impl Iterator<Item = usize>) -> Result<usize> {
    lens.try_fold(0_usize, |sum, len| sum.checked_add(len))
        .ok_or(Errno::Inval)
}

/// The word that comes back with a completion.
#[inline(always)]
pub(crate) fn context(context: *mut c_void) -> Context {
    Context(context.expose_provenance() as u64)
}

/// Descriptors, as many as pieces, or none.
///
/// # Safety
/// `at` is NULL or names `count` of them.
#[inline(always)]
pub(super) unsafe fn descs<'a>(at: *const *mut c_void, count: usize) -> Result<&'a [Desc]> {
    // SAFETY: passed on from the caller; a descriptor is as large as a pointer, and any will do.
    unsafe { optional(at.cast::<Desc>(), count.min(MAX_SEGMENTS)) }
}

/// Bits that C knows nothing of.
const INTERNAL_FLAGS: OpFlags = OpFlags::DEFAULT.union(OpFlags::DEFERRED);

/// Flags of a full form.
///
/// # Errors
/// [`Errno::BadFlags`] for bits that mean nothing.
#[inline(always)]
pub(super) fn flags(raw: u64) -> Result<OpFlags> {
    match OpFlags::from_bits(raw) {
        Some(flags) if !flags.intersects(INTERNAL_FLAGS) => Ok(flags),
        _ => Err(Errno::BadFlags),
    }
}

/// What is injected.
///
/// # Errors
/// [`Errno::Inval`] for NULL; [`Errno::MsgSize`] for more than memory can hold.
///
/// # Safety
/// `at` is NULL or names `len` bytes.
#[inline(always)]
pub(super) unsafe fn bytes<'a>(at: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len > isize::MAX.cast_unsigned() {
        return Err(Errno::MsgSize);
    }
    // SAFETY: passed on from the caller.
    unsafe { list(at.cast(), len) }
}

const _: () = assert!(size_of::<Desc>() == size_of::<*mut c_void>());
const _: () = assert!(size_of::<Iov>() == size_of::<abi::Iovec>());
const _: () = assert!(size_of::<RmaIov>() == size_of::<abi::RmaIov>());
const _: () = assert!(size_of::<Ioc>() == size_of::<abi::Ioc>());
const _: () = assert!(size_of::<RmaIoc>() == size_of::<abi::RmaIoc>());
