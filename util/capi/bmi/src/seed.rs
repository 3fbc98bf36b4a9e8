//! The dialect of the first BMI, `BMI_SEED_DIALECT`: no contexts, and waits that block for ten
//! milliseconds.
//!
//! With `bmi.h`, programs of this dialect pass [`context::UNNAMED`].

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{c_int, c_void};

use selvedge_bmi::WAIT;

use crate::context;
use crate::test::{self, UnexpectedInfo};

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
            context::UNNAMED,
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
            context::UNNAMED,
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
