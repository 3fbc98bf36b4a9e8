//! Converts lists, flags and contexts of C to the object model's types.

#![expect(unsafe_code, reason = "lists of C")]

use std::ffi::c_void;

use selvedge::atomic::{Ioc, IocMut, RmaIoc};
use selvedge::rma::RmaIov;
use selvedge::{Desc, Errno, Iov, IovMut, OpFlags, Result};
use selvedge_abi as abi;

use crate::pointer::{array, optional_array};

/// Limit of segments, above every provider's own limit. A longer list is not read.
const MAX_SEGMENTS: usize = 64;
/// Number of segments that are checked. A provider with a higher limit checks its lists itself.
const CHECKED_SEGMENTS: usize = 4;

/// A segment of memory.
pub(crate) trait Segment {
    /// Returns whether the segment cannot be memory: bytes at NULL, or more bytes than an address
    /// space can hold.
    fn is_invalid(&self) -> bool;
}

impl Segment for Iov {
    #[inline(always)]
    fn is_invalid(&self) -> bool {
        self.base.is_null() && self.len > 0
    }
}

impl Segment for IovMut {
    #[inline(always)]
    fn is_invalid(&self) -> bool {
        self.base.is_null() && self.len > 0 || self.len > isize::MAX.cast_unsigned()
    }
}

impl Segment for Ioc {
    #[inline(always)]
    fn is_invalid(&self) -> bool {
        self.addr.is_null() && self.count > 0
    }
}

impl Segment for IocMut {
    #[inline(always)]
    fn is_invalid(&self) -> bool {
        self.addr.is_null() && self.count > 0
    }
}

/// Checks that segments with bytes have an address and a possible length. The provider fails a send
/// that is too long.
///
/// # Errors
/// [`Errno::Inval`] for an invalid segment.
#[inline(always)]
pub(crate) fn check_segments<S: Segment>(segments: &[S]) -> Result<&[S]> {
    if segments
        .iter()
        .take(CHECKED_SEGMENTS)
        .any(Segment::is_invalid)
    {
        Err(Errno::Inval)
    } else {
        Ok(segments)
    }
}

/// As [`check_segments`], for receives: a list whose segments are all at NULL is an empty buffer,
/// as in [`receive_buffer`].
#[inline(always)]
pub(crate) fn check_receive_segments(segments: &[IovMut]) -> Result<&[IovMut]> {
    match check_segments(segments) {
        Err(_) if segments.iter().all(|segment| segment.base.is_null()) => Ok(&[]),
        check_segments => check_segments,
    }
}

/// The buffer of a receive. Programs that expect no bytes post NULL with a length. The receive then
/// has an empty buffer, and truncates a message with bytes.
#[inline(always)]
pub(crate) fn receive_buffer(buf: *mut c_void, len: usize) -> abi::Iovec {
    abi::Iovec {
        iov_base: buf,
        iov_len: if buf.is_null() { 0 } else { len },
    }
}

/// A structure of C that is laid out as a `T`.
///
/// # Safety
/// For implementors: the layouts are equal, and any values of the members are a valid `T`.
pub(crate) unsafe trait LaidOutAs<T> {}

// SAFETY: both structures are an address and a length, of which any values are valid.
unsafe impl LaidOutAs<Iov> for abi::Iovec {}
// SAFETY: as above.
unsafe impl LaidOutAs<IovMut> for abi::Iovec {}
// SAFETY: both structures are an address and a count, of which any values are valid.
unsafe impl LaidOutAs<Ioc> for abi::Ioc {}
// SAFETY: as above.
unsafe impl LaidOutAs<IocMut> for abi::Ioc {}
// SAFETY: both structures are three numbers.
unsafe impl LaidOutAs<RmaIov> for abi::RmaIov {}
// SAFETY: as above.
unsafe impl LaidOutAs<RmaIoc> for abi::RmaIoc {}

/// A list of at most [`MAX_SEGMENTS`] elements.
///
/// # Errors
/// As [`array()`]; [`Errno::Inval`] for a longer list.
///
/// # Safety
/// As [`array()`].
#[inline(always)]
pub(crate) unsafe fn bounded<'a, C: LaidOutAs<T>, T>(
    first: *const C,
    count: usize,
) -> Result<&'a [T]> {
    if count > MAX_SEGMENTS {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller; `C` is laid out as `T`.
    unsafe { array(first.cast(), count) }
}

/// The total length of a list, which is the length of the remote memory.
///
/// # Errors
/// [`Errno::Inval`] for more than memory can hold.
#[inline(always)]
pub(crate) fn total(mut lens: impl Iterator<Item = usize>) -> Result<usize> {
    lens.try_fold(0_usize, |sum, len| sum.checked_add(len))
        .ok_or(Errno::Inval)
}

/// Descriptors of memory, as many as there are segments, or none.
///
/// # Safety
/// `first` is NULL or points to `count` descriptors.
#[inline(always)]
pub(crate) unsafe fn descs<'a>(first: *const *mut c_void, count: usize) -> Result<&'a [Desc]> {
    // SAFETY: passed on from the caller; a descriptor is as large as a pointer, and any value is
    // valid.
    unsafe { optional_array(first.cast::<Desc>(), count.min(MAX_SEGMENTS)) }
}

/// Flags of the object model that C does not have.
const INTERNAL_FLAGS: OpFlags = OpFlags::DEFAULT
    .union(OpFlags::DEFERRED)
    .union(OpFlags::LEND);

/// Flags of a full form, such as fi_sendmsg(3).
///
/// # Errors
/// [`Errno::BadFlags`] for unknown bits.
#[inline(always)]
pub(crate) fn flags(raw: u64) -> Result<OpFlags> {
    match OpFlags::from_bits(raw) {
        Some(flags) if !flags.intersects(INTERNAL_FLAGS) => Ok(flags),
        _ => Err(Errno::BadFlags),
    }
}

/// The bytes of an inject.
///
/// # Errors
/// [`Errno::Inval`] for NULL; [`Errno::MsgSize`] for more than memory can hold.
///
/// # Safety
/// `first` is NULL or points to `len` bytes.
#[inline(always)]
pub(crate) unsafe fn bytes<'a>(first: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len > isize::MAX.cast_unsigned() {
        return Err(Errno::MsgSize);
    }
    // SAFETY: passed on from the caller.
    unsafe { array(first.cast(), len) }
}

const _: () = assert!(size_of::<Desc>() == size_of::<*mut c_void>());
const _: () = assert!(size_of::<Iov>() == size_of::<abi::Iovec>());
const _: () = assert!(size_of::<RmaIov>() == size_of::<abi::RmaIov>());
const _: () = assert!(size_of::<Ioc>() == size_of::<abi::Ioc>());
const _: () = assert!(size_of::<RmaIoc>() == size_of::<abi::RmaIoc>());
