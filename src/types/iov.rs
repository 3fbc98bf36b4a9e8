//! Scatter/gather elements, registration descriptors and operation contexts.

#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use std::ffi::c_void;

/// A readable segment of memory: `struct iovec` for a send.
///
/// An `Iov` is a plain value without a lifetime. The caller who posts an operation promises that
/// the bytes stay valid (the `# Safety` section of [`crate::Msg::sendmsg`]).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Iov {
    /// First byte.
    pub base: *const c_void,
    /// Length in bytes.
    pub len: usize,
}

/// A writable segment of memory: `struct iovec` for a receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IovMut {
    /// First byte.
    pub base: *mut c_void,
    /// Length in bytes.
    pub len: usize,
}

impl Iov {
    /// Describes `bytes`.
    #[inline]
    pub const fn new(bytes: &[u8]) -> Self {
        Self {
            base: bytes.as_ptr().cast(),
            len: bytes.len(),
        }
    }

    /// Describes `len` bytes that begin at `base`.
    #[inline]
    pub const fn from_raw(base: *const c_void, len: usize) -> Self {
        Self { base, len }
    }
}

impl IovMut {
    /// Describes `bytes`.
    #[inline]
    pub const fn new(bytes: &mut [u8]) -> Self {
        Self {
            base: bytes.as_mut_ptr().cast(),
            len: bytes.len(),
        }
    }

    /// Describes `len` bytes that begin at `base`.
    #[inline]
    pub const fn from_raw(base: *mut c_void, len: usize) -> Self {
        Self { base, len }
    }
}

#[expect(unsafe_code, reason = "a description of memory, not an access to it")]
mod thread_safety {
    // SAFETY: the value is an address and a length; code that dereferences it has its own argument.
    unsafe impl Send for super::Iov {}
    // SAFETY: as above.
    unsafe impl Sync for super::Iov {}
    // SAFETY: as above.
    unsafe impl Send for super::IovMut {}
    // SAFETY: as above.
    unsafe impl Sync for super::IovMut {}
}

/// A local registration descriptor (fi_mr_desc(3)); [`Desc::NONE`] where an operation needs none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Desc(pub usize);

impl Desc {
    /// No descriptor.
    pub const NONE: Self = Self(0);
}

/// The context of an operation: a value of the application that the completion returns.
///
/// The C interface stores the `void *context` in this value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Context(pub u64);

const _: () = assert!(size_of::<Iov>() == size_of::<libc::iovec>());
const _: () = assert!(size_of::<IovMut>() == size_of::<libc::iovec>());
