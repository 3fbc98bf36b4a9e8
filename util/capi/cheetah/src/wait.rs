//! Progress, barriers, and the conditions that end a wait.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, c_char, c_int, c_ulong};
use std::time::{Duration, Instant};

use selvedge_cheetah::BellName;

use crate::lifecycle::open;
use crate::status::{Context, count, guarded, record_error};

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_progress(context: *mut Context) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { open(context) }?.core.progress().map(|_| 0))
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_failure(context: *mut Context) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let failure = unsafe { open(context) }?.core.failure();
        Ok(failure.map_or(0, |error| record_error(&error)))
    })
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_unreported_failure(context: *mut Context) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let failure = unsafe { open(context) }?.core.unreported_failure();
        Ok(failure.map_or(0, |error| record_error(&error)))
    })
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_hopeless(context: *mut Context, bell: *mut c_int) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        let bell = (!bell.is_null()).then(|| BellName::at(bell.addr()));
        let error = core.wait_error(bell);
        if let (Some(bell), Some(_)) = (bell, &error) {
            core.clear_bell_error(bell);
        }
        Ok(error.map_or(0, |error| record_error(&error)))
    })
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_rest(context: *mut Context, millis: c_int) -> c_int {
    guarded(|| {
        let time = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        // SAFETY: the caller's promise.
        unsafe { open(context) }?.core.wait_for_events(time);
        Ok(0)
    })
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_limit(context: *const Context) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let limit = unsafe { open(context) }?.core.limit();
        Ok(limit.map_or(0, |limit| count(limit.as_millis() as usize).max(1)))
    })
}

/// # Safety
/// `context` is open; `operation` is null or a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_timed_out(
    context: *mut Context,
    operation: *const c_char,
    millis: c_int,
    is_barrier: c_int,
) -> c_int {
    guarded(|| {
        let operation = if operation.is_null() {
            "wait".into()
        } else {
            // SAFETY: the caller's promise.
            unsafe { CStr::from_ptr(operation) }.to_string_lossy()
        };
        let elapsed = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        let now = Instant::now();
        let start = now.checked_sub(elapsed).unwrap_or(now);
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        Err(core.timed_out(&operation, start, is_barrier != 0))
    })
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_barrier_begin(context: *mut Context) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { open(context) }?.core.barrier_begin().map(|()| 0))
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_barrier_done(context: *mut Context) -> c_int {
    // SAFETY: the caller's promise.
    guarded(|| Ok(unsafe { open(context) }?.core.barrier_done()?.into()))
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_copies(context: *const Context) -> c_ulong {
    // SAFETY: the caller's promise.
    let context = unsafe { open(context) };
    context.map_or(0, |context| context.core.copies().all())
}
