//! Return values of C functions, the text of the last error, and checks of arguments.

#![expect(unsafe_code, reason = "names of C")]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge_cheetah::core::Core;
use selvedge_cheetah::{Error, Result};

const ERROR: c_int = -1;
const PEER_FAILED: c_int = -2;
const FINALIZED: c_int = -3;
const TIMED_OUT: c_int = -4;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// `struct cheetah_context`: a context that C holds by a pointer.
pub(crate) struct Context {
    pub(crate) core: Core,
    pub(crate) special: std::sync::Mutex<Vec<std::sync::Arc<selvedge::owned::SharedRegion>>>,
}

/// Runs the body of a C function. Returns a negative number for an error and for a panic, and
/// stores the text of `cheetah_error`.
pub(crate) fn guarded(run: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => record_error(&error),
        Err(_) => {
            set_last_error("internal error: a panic, whose message is on standard error");
            ERROR
        }
    }
}

/// Stores the text of an error for `cheetah_error`, and returns its number.
pub(crate) fn record_error(error: &Error) -> c_int {
    set_last_error(&error.to_string());
    match error {
        Error::PeerFailed { .. } => PEER_FAILED,
        Error::Finalized(_) => FINALIZED,
        Error::TimedOut { .. } => TIMED_OUT,
        _ => ERROR,
    }
}

fn set_last_error(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = text);
}

/// Converts an index of C, such as the index of a context; `name` is the object's name in the
/// error.
pub(crate) fn index_of(name: &str, value: c_int) -> Result<usize> {
    let index = usize::try_from(value);
    index.map_err(|_| Error::Garbled(format!("there is no {name} {value}")))
}

/// Checks that a length is not negative as a signed number, and that bytes are not at a null
/// pointer.
pub(crate) fn check_span<T>(name: &str, first: *const T, len: usize) -> Result {
    if isize::try_from(len).is_err() {
        let len = len.cast_signed();
        return Err(Error::Garbled(format!(
            "{name} of {len} bytes: the length is negative"
        )));
    }
    if first.is_null() && len > 0 {
        return Err(Error::Garbled(format!(
            "{name} of {len} bytes at a null pointer"
        )));
    }
    Ok(())
}

/// A count for C.
pub(crate) fn count(value: usize) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// The text of the last error of this thread.
#[unsafe(no_mangle)]
extern "C" fn cheetah_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}
