//! Scatter/gather elements, registration descriptors and operation contexts.

#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as of the man page's structures"
)]

use std::ffi::c_void;

/// One readable stretch of memory: `struct iovec` for a send.
///
/// A plain value without a lifetime: the promise that the bytes stay valid is made where the
/// operation is posted (the `# Safety` text of [`crate::Msg::sendmsg`]).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Iov {
    /// First byte.
    pub base: *const c_void,
    /// Length in bytes.
    pub len: usize,
}

/// One writable stretch of memory: `struct iovec` for a receive.
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

    /// Describes `len` bytes from `base` on.
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

    /// Describes `len` bytes from `base` on.
    #[inline]
    pub const fn from_raw(base: *mut c_void, len: usize) -> Self {
        Self { base, len }
    }
}

#[expect(unsafe_code, reason = "a description of memory, not an access to it")]
mod thread_safety {
    // SAFETY: the value is an address and a length; whoever dereferences it has its own argument.
    unsafe impl Send for super::Iov {}
    // SAFETY: as above.
    unsafe impl Sync for super::Iov {}
    // SAFETY: as above.
    unsafe impl Send for super::IovMut {}
    // SAFETY: as above.
    unsafe impl Sync for super::IovMut {}
}

/// Local registration descriptor (fi_mr_desc(3)); [`Desc::NONE`] where none is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Desc(pub usize);

impl Desc {
    /// No descriptor.
    pub const NONE: Self = Self(0);
}

/// The application's word that comes back with the completion of an operation.
///
/// The C face stores the `void *context` here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Context(pub u64);

const _: () = assert!(size_of::<Iov>() == size_of::<libc::iovec>());
const _: () = assert!(size_of::<IovMut>() == size_of::<libc::iovec>());
