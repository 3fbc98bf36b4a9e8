//! Connection requests, whose handle is a `struct fid`, and limits of connections.

#![expect(unsafe_code, reason = "handles of C")]

use std::ffi::c_int;
use std::ptr;

use selvedge::{EpOptionName, Result};
use selvedge_abi::{Fid, Ops, fclass};

use crate::object::{self, Table, argument, class};

/// The largest private data of a connection, in bytes.
pub(crate) const CM_DATA_SIZE: usize = 256;

/// `FI_OPT_CM_DATA_SIZE`.
pub(crate) const CM_DATA_SIZE_NAME: c_int = EpOptionName::CmDataSize as c_int;

/// The object behind the handle of a connection request: its number.
pub(crate) struct Request(u64);

class! {
    Request, Fid, FID, |_| fclass::CONNREQ
}

static FID: Table<Ops, Request> = object::ops();

/// Allocates a handle for a request. Opening an endpoint with the handle, or rejecting the request,
/// closes the handle.
pub(crate) fn allocate(number: u64) -> *mut Fid {
    object::new(Request(number), ptr::null_mut(), None)
}

/// The number of a request.
///
/// # Errors
/// [`selvedge::Errno::Inval`] for a handle of another class, and for a request that was accepted or
/// rejected.
///
/// # Safety
/// `handle` is NULL or a handle.
pub(crate) unsafe fn number_of(handle: *const Fid) -> Result<u64> {
    // SAFETY: passed on from the caller.
    unsafe { argument::<Request>(handle) }.map(|request| request.0)
}
