//! Answers: what a call says to C, and that no panic leaves it.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge::{Errno, Error, Result};

/// The negative number of an error.
#[inline]
pub(crate) const fn refusal(errno: Errno) -> c_int {
    -errno.as_raw()
}

/// Runs what a function of C's is for. What goes wrong is a negative number, also a panic.
pub(crate) fn call(body: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(errno)) => refusal(errno),
        Err(_) => refusal(Errno::Other),
    }
}

/// As [`call`], for what has nothing to say but that it was done.
pub(crate) fn done(body: impl FnOnce() -> Result) -> c_int {
    call(|| body().map(|()| 0))
}

/// As [`call`], for what cannot fail.
pub(crate) fn always(body: impl FnOnce()) -> c_int {
    done(|| {
        body();
        Ok(())
    })
}

/// As [`call`], for functions that say how much.
pub(crate) fn counted(body: impl FnOnce() -> Result<usize>) -> isize {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(answer) => size(answer),
        Err(_) => refusal(Errno::Other) as isize,
    }
}

/// A count or an error.
#[inline]
pub(crate) fn size(answer: Result<usize>) -> isize {
    match answer {
        Ok(count) => count.cast_signed(),
        Err(errno) => refusal(errno) as isize,
    }
}

/// A post. Whatever panics below ends the process: on this way nothing is caught.
#[inline]
pub(crate) fn posted(answer: Result) -> isize {
    match answer {
        Ok(()) => 0,
        Err(errno) => refusal(errno) as isize,
    }
}

/// Tells whoever reads the log what C gets as a number.
pub(crate) fn told(error: &Error) -> Errno {
    log::info!(target: "selvedge::core::core", "{error}");
    error.errno()
}
