//! The dialect of the first BMI, `BMI_SEED_DIALECT`: no contexts, and waits that block for ten
//! milliseconds.
//!
//! With `bmi.h`, programs of this dialect pass [`CONTEXT`]. Its first use opens a context.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

use selvedge_bmi::{Bmi, ContextId, Result, WAIT};

use crate::test::{self, UnexpectedInfo};

/// `BMI_SEED_CONTEXT`: stands for the context of programs that have none.
const CONTEXT: i64 = i64::MIN;

static DEFAULT_CONTEXT: Mutex<Option<ContextId>> = Mutex::new(None);

/// The context of an argument: the default context for [`CONTEXT`], otherwise the argument itself.
///
/// # Errors
/// As [`Bmi::open_context`].
#[inline]
pub(crate) fn context(bmi: &Bmi, context: i64) -> Result<ContextId> {
    match context {
        CONTEXT => default_context(bmi),
        named => Ok(ContextId(named)),
    }
}

#[cold]
fn default_context(bmi: &Bmi) -> Result<ContextId> {
    let mut opened = DEFAULT_CONTEXT
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    match *opened {
        Some(context) => Ok(context),
        None => Ok(*opened.insert(bmi.open_context()?)),
    }
}

/// Forgets the default context, if the last `BMI_finalize` has closed the instance and its
/// contexts.
pub(crate) fn forget_context() {
    if selvedge_bmi::process::instance().is_err() {
        *DEFAULT_CONTEXT
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn wait_ms() -> c_int {
    WAIT.as_millis() as c_int
}

/// # Safety
/// As `BMI_test`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_wait(
    id: i64,
    outcount: *mut c_int,
    error_code: *mut i32,
    actual_size: *mut i64,
    user_ptr: *mut *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        test::BMI_test(
            id,
            outcount,
            error_code,
            actual_size,
            user_ptr,
            wait_ms(),
            CONTEXT,
        )
    }
}

/// # Safety
/// As `BMI_testsome`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_waitsome(
    incount: c_int,
    id_array: *const i64,
    outcount: *mut c_int,
    index_array: *mut c_int,
    error_code_array: *mut i32,
    actual_size_array: *mut i64,
    user_ptr_array: *mut *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        test::BMI_testsome(
            incount,
            id_array,
            outcount,
            index_array,
            error_code_array,
            actual_size_array,
            user_ptr_array,
            wait_ms(),
            CONTEXT,
        )
    }
}

/// # Safety
/// As `BMI_testunexpected`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_waitunexpected(
    incount: c_int,
    outcount: *mut c_int,
    info_array: *mut UnexpectedInfo,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { test::BMI_testunexpected(incount, outcount, info_array, wait_ms()) }
}
