//! Return values of C functions: 0 or a count, or the negative number of a code.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use selvedge_bmi::{Bmi, Code, Result, process};

/// The negative number of a code.
pub(crate) const fn error_status(code: Code) -> c_int {
    -code.as_raw()
}

/// Calls the instance of this process. Returns a negative number for an error and for a panic.
#[inline]
pub(crate) fn call(body: impl FnOnce(&Bmi) -> Result<c_int>) -> c_int {
    guarded(|| process::with(body)?)
}

/// Runs the body of a C function. Returns a negative number for an error and for a panic.
#[inline]
pub(crate) fn guarded(body: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(code)) => error_status(code),
        Err(_) => error_status(Code::EIO),
    }
}

/// The longest time that a test may wait, from milliseconds.
///
/// # Errors
/// [`Code::EINVAL`] for a negative number.
#[inline]
pub(crate) fn idle_time(ms: c_int) -> Result<Duration> {
    let ms = u64::try_from(ms).map_err(|_| Code::EINVAL)?;
    Ok(Duration::from_millis(ms))
}

/// A count of array members.
///
/// # Errors
/// [`Code::EINVAL`] for a negative number.
#[inline]
pub(crate) fn count(count: c_int) -> Result<usize> {
    usize::try_from(count).map_err(|_| Code::EINVAL)
}

/// The return value of a test: 1 if it has reported a completion or a message, otherwise 0.
#[inline]
pub(crate) const fn test_status(count: usize) -> c_int {
    (count > 0) as c_int
}
