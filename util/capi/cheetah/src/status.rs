//! Numbers for errors, sentences beside them, and panics that stay inside.

#![expect(unsafe_code, reason = "names of C")]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use selvedge_cheetah::core::Core;
use selvedge_cheetah::{Error, Result};

const ERROR: c_int = -1;
const LOST: c_int = -2;
const FINALIZED: c_int = -3;
const TIMED_OUT: c_int = -4;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A context, as C holds it.
pub(crate) struct Context {
    pub(crate) core: Core,
    pub(crate) special: std::sync::Mutex<Vec<std::sync::Arc<selvedge::owned::SharedRegion>>>,
}

/// Runs what a function of C's is for.
pub(crate) fn guarded(run: impl FnOnce() -> Result<c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => record_error(&error),
        Err(_) => {
            set_last_error("the library has failed: a panic, with its message on standard error");
            ERROR
        }
    }
}

/// Notes the sentence, and says the number.
pub(crate) fn record_error(error: &Error) -> c_int {
    set_last_error(&error.to_string());
    match error {
        Error::PeerFailed { .. } => LOST,
        Error::Finalized(_) => FINALIZED,
        Error::TimedOut { .. } => TIMED_OUT,
        _ => ERROR,
    }
}

fn set_last_error(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = text);
}

/// A number of C's that counts something.
pub(crate) fn number(name: &str, value: c_int) -> Result<usize> {
    let number = usize::try_from(value);
    number.map_err(|_| Error::Garbled(format!("there is no {name} {value}")))
}

/// Checks what C says about bytes: that there are so many, and that they are somewhere.
pub(crate) fn check_span<T>(name: &str, first: *const T, len: usize) -> Result {
    if isize::try_from(len).is_err() {
        let len = len.cast_signed();
        return Err(Error::Garbled(format!("{name} of {len} bytes")));
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

/// The sentence of the last error of this thread.
#[unsafe(no_mangle)]
extern "C" fn cheetah_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}
