//! Answers: what a call says to C, and that no panic leaves it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge::{Errno, Error, Result};

/// The negative number of an error.
#[inline]
pub(crate) const fn error_status(errno: Errno) -> c_int {
    -errno.as_raw()
}

/// Runs what a function of C's is for. What goes wrong is a negative number, also a panic.
pub(crate) fn guarded(body: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => result,
        Ok(Err(errno)) => error_status(errno),
        Err(_) => error_status(Errno::Other),
    }
}

/// As [`guarded`], for what has nothing to say but that it was done.
pub(crate) fn guarded_unit(body: impl FnOnce() -> Result) -> c_int {
    guarded(|| body().map(|()| 0))
}

/// As [`guarded`], for what cannot fail.
pub(crate) fn guarded_infallible(body: impl FnOnce()) -> c_int {
    guarded_unit(|| {
        body();
        Ok(())
    })
}

/// As [`guarded`], for functions that say how much.
pub(crate) fn guarded_count(body: impl FnOnce() -> Result<usize>) -> isize {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => count_status(result),
        Err(_) => error_status(Errno::Other) as isize,
    }
}

/// A count or an error.
#[inline]
pub(crate) fn count_status(result: Result<usize>) -> isize {
    match result {
        Ok(count) => count.cast_signed(),
        Err(errno) => error_status(errno) as isize,
    }
}

/// A post. Whatever panics below ends the process: on this way nothing is caught.
#[inline]
pub(crate) fn post_status(result: Result) -> isize {
    match result {
        Ok(()) => 0,
        Err(errno) => error_status(errno) as isize,
    }
}

/// Tells whoever reads the log what C gets as a number.
pub(crate) fn log_error(error: &Error) -> Errno {
    log::info!(target: "selvedge::core::core", "{error}");
    error.errno()
}
