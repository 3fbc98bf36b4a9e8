//! Lists and words of C, as the object model has them.

#![expect(unsafe_code, reason = "lists of C")]

use std::ffi::c_void;

use selvedge::atomic::{Ioc, IocMut, RmaIoc};
use selvedge::rma::RmaIov;
use selvedge::{Context, Desc, Errno, Iov, IovMut, OpFlags, Result};
use selvedge_abi as abi;

use crate::given::{list, optional};

/// Pieces that no provider takes as many of: a list that is said to be longer is not looked at.
const MOST: usize = 64;
/// Pieces of a list that are looked at: whoever takes more looks at them itself.
const LOOKED_AT: usize = 4;

/// A piece of memory.
pub(super) trait Piece {
    /// Whether it is no memory: bytes that are nowhere, or room for more than there can be.
    fn is_missing(&self) -> bool;
}

impl Piece for Iov {
    #[inline(always)]
    fn is_missing(&self) -> bool {
        self.base.is_null() && self.len > 0
    }
}

impl Piece for IovMut {
    #[inline(always)]
    fn is_missing(&self) -> bool {
        self.base.is_null() && self.len > 0 || self.len > isize::MAX.cast_unsigned()
    }
}

impl Piece for Ioc {
    #[inline(always)]
    fn is_missing(&self) -> bool {
        self.addr.is_null() && self.count > 0
    }
}

impl Piece for IocMut {
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
pub(super) fn named(pieces: &[impl Piece]) -> Result {
    match pieces.iter().take(LOOKED_AT).any(Piece::is_missing) {
        true => Err(Errno::Inval),
        false => Ok(()),
    }
}

/// The room of a receive. Programs post NULL with a length where nothing will come: that is no room,
/// and a message with bytes is truncated to none.
#[inline(always)]
pub(super) fn room(buf: *mut c_void, len: usize) -> IovMut {
    IovMut::from_raw(buf, if buf.is_null() { 0 } else { len })
}

/// # Errors
/// As [`list`]; [`Errno::Inval`] for more than [`MOST`].
///
/// # Safety
/// As [`list`].
#[inline(always)]
unsafe fn few<'a, T>(at: *const T, count: usize) -> Result<&'a [T]> {
    if count > MOST {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller.
    unsafe { list(at, count) }
}

/// The word that comes back with a completion.
#[inline(always)]
pub(crate) fn context(context: *mut c_void) -> Context {
    Context(context.expose_provenance() as u64)
}

/// A descriptor, which is no pointer of ours.
#[inline(always)]
pub(super) fn desc(desc: *mut c_void) -> Desc {
    Desc(desc.addr())
}

/// Descriptors, as many as pieces, or none.
///
/// # Safety
/// `at` is NULL or names `count` of them.
#[inline(always)]
pub(super) unsafe fn descs<'a>(at: *const *mut c_void, count: usize) -> Result<&'a [Desc]> {
    // SAFETY: passed on from the caller; a descriptor is as large as a pointer, and any will do.
    unsafe { optional(at.cast::<Desc>(), count.min(MOST)) }
}

/// Bits that C knows nothing of.
const OWN: OpFlags = OpFlags::DEFAULT.union(OpFlags::DEFERRED);

/// Flags of a full form.
///
/// # Errors
/// [`Errno::BadFlags`] for bits that mean nothing.
#[inline(always)]
pub(super) fn flags(raw: u64) -> Result<OpFlags> {
    match OpFlags::from_bits(raw) {
        Some(flags) if !flags.intersects(OWN) => Ok(flags),
        _ => Err(Errno::BadFlags),
    }
}

/// What is sent.
///
/// # Safety
/// `at` is NULL or names `count` pieces.
#[inline(always)]
pub(super) unsafe fn iov<'a>(at: *const abi::Iovec, count: usize) -> Result<&'a [Iov]> {
    // SAFETY: passed on from the caller; both describe memory in the same way.
    let pieces = unsafe { few(at.cast(), count) }?;
    named(pieces).map(|()| pieces)
}

/// Where something goes.
///
/// # Safety
/// As [`iov`].
#[inline(always)]
pub(super) unsafe fn iov_mut<'a>(at: *const abi::Iovec, count: usize) -> Result<&'a [IovMut]> {
    // SAFETY: passed on from the caller; both describe memory in the same way.
    let pieces = unsafe { few(at.cast(), count) }?;
    named(pieces).map(|()| pieces)
}

/// Where a message goes. Where all pieces are NULL there is no room, as in [`room`].
///
/// # Safety
/// As [`iov`].
#[inline(always)]
pub(super) unsafe fn iov_room<'a>(at: *const abi::Iovec, count: usize) -> Result<&'a [IovMut]> {
    // SAFETY: passed on from the caller; both describe memory in the same way.
    let pieces: &[IovMut] = unsafe { few(at.cast(), count) }?;
    if pieces.iter().all(|piece| piece.base.is_null()) {
        return Ok(&[]);
    }
    named(pieces).map(|()| pieces)
}

/// Places at a peer.
///
/// # Safety
/// As [`iov`].
#[inline(always)]
pub(super) unsafe fn rma_iov<'a>(at: *const abi::RmaIov, count: usize) -> Result<&'a [RmaIov]> {
    // SAFETY: passed on from the caller; both are laid out in the same way.
    unsafe { few(at.cast(), count) }
}

/// Elements.
///
/// # Safety
/// As [`iov`].
#[inline(always)]
pub(super) unsafe fn ioc<'a>(at: *const abi::Ioc, count: usize) -> Result<&'a [Ioc]> {
    // SAFETY: passed on from the caller; both are laid out in the same way.
    unsafe { few(at.cast(), count) }
}

/// Room for elements.
///
/// # Safety
/// As [`iov`].
#[inline(always)]
pub(super) unsafe fn ioc_mut<'a>(at: *const abi::Ioc, count: usize) -> Result<&'a [IocMut]> {
    // SAFETY: passed on from the caller; both are laid out in the same way.
    unsafe { few(at.cast(), count) }
}

/// Elements at a peer.
///
/// # Safety
/// As [`iov`].
#[inline(always)]
pub(super) unsafe fn rma_ioc<'a>(at: *const abi::RmaIoc, count: usize) -> Result<&'a [RmaIoc]> {
    // SAFETY: passed on from the caller; both are laid out in the same way.
    unsafe { few(at.cast(), count) }
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
