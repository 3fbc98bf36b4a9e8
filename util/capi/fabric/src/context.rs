//! Contexts of operations: C's pointers, and the object model's numbers.

use std::ffi::c_void;
use std::ptr;

use selvedge::Context;

/// The context that a completion reports.
#[inline(always)]
pub(crate) fn from_c(context: *mut c_void) -> Context {
    Context(context.expose_provenance() as u64)
}

/// The context pointer that a program has passed with an operation.
pub(crate) fn to_c(context: Context) -> *mut c_void {
    ptr::with_exposed_provenance_mut(usize::try_from(context.0).unwrap_or(usize::MAX))
}

const _: () = assert!(size_of::<Context>() == size_of::<*mut c_void>());
