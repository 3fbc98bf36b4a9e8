//! Return values of C functions: a count or 0, or a negative error number. A panic does not leave a
//! guarded call.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge::{Errno, Error, Result};

/// The negative number of an error.
#[inline]
pub(crate) const fn error_status(errno: Errno) -> c_int {
    -errno.as_raw()
}

/// Runs the body of a C function. Returns a negative error number for an error and for a panic.
pub(crate) fn guarded(body: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => result,
        Ok(Err(errno)) => error_status(errno),
        Err(_) => error_status(Errno::Other),
    }
}

/// As [`guarded`], for a body without a result: returns 0.
pub(crate) fn guarded_unit(body: impl FnOnce() -> Result) -> c_int {
    guarded(|| body().map(|()| 0))
}

/// As [`guarded`], for a body that cannot fail.
pub(crate) fn guarded_infallible(body: impl FnOnce()) -> c_int {
    guarded_unit(|| {
        body();
        Ok(())
    })
}

/// As [`guarded`], for functions that return a count or a size.
pub(crate) fn guarded_count(body: impl FnOnce() -> Result<usize>) -> isize {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => count_status(result),
        Err(_) => error_status(Errno::Other) as isize,
    }
}

/// A count, or a negative error number.
#[inline]
pub(crate) fn count_status(result: Result<usize>) -> isize {
    match result {
        Ok(count) => count.cast_signed(),
        Err(errno) => error_status(errno) as isize,
    }
}

/// The return value of a post. A panic below a post ends the process, because the fast path does
/// not catch panics.
#[inline]
pub(crate) fn post_status(result: Result) -> isize {
    match result {
        Ok(()) => 0,
        Err(errno) => error_status(errno) as isize,
    }
}

/// Logs the text of an error, and returns the error number for C.
pub(crate) fn log_error(error: &Error) -> Errno {
    log::info!(target: "selvedge::core::core", "{error}");
    error.errno()
}
