//! gossip, the log of the library and of the application: facility, debug mask and stamp.
//!
//! These functions return 0 or a negative error number of the system, as gossip of PVFS does.

#![expect(unsafe_code, reason = "the C interface")]

use std::backtrace::Backtrace;
use std::ffi::{CStr, c_char, c_int};
use std::panic::catch_unwind;

use libc::{EINVAL, EIO};
use selvedge_bmi::support::gossip::{self, Mask};

use crate::facility::{self, Facility, Stamp};

/// Logs the reason of a failed call, whose return value is only a number.
#[cold]
pub(crate) fn log_error(text: &str) {
    gossip::err(format_args!("{text}"));
}

/// Installs the library's logger, unless the program has one.
pub(crate) fn open_log() {
    // An invalid variable is reported by the call that reads it.
    let _ = selvedge::log::init();
}

/// Sends all messages to a facility from now on.
fn enable(facility: Result<Facility, c_int>) -> c_int {
    let result = catch_unwind(|| {
        facility::set(facility?);
        open_log();
        selvedge::log::set_output(Some(facility::print_logged));
        gossip::set_debug_output(facility::print_debug);
        Ok(0)
    });
    result
        .unwrap_or(Err(EIO))
        .unwrap_or_else(|errno: c_int| -errno)
}

/// Sends messages to the standard error stream.
#[unsafe(no_mangle)]
extern "C" fn gossip_enable_stderr() -> c_int {
    enable(Ok(Facility::Stderr))
}

/// Sends messages to the standard output stream.
#[unsafe(no_mangle)]
extern "C" fn gossip_enable_stdout() -> c_int {
    enable(Ok(Facility::Stdout))
}

/// Sends messages to a file, which is opened as by fopen(3). If the file cannot be opened, the
/// facility does not change.
///
/// # Safety
/// `filename` and `mode` are null or end with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gossip_enable_file(filename: *const c_char, mode: *const c_char) -> c_int {
    if filename.is_null() || mode.is_null() {
        return -EINVAL;
    }
    // SAFETY: the pointer is not null, and the caller promises the zero.
    let name = unsafe { CStr::from_ptr(filename) };
    // SAFETY: as above.
    let mode = unsafe { CStr::from_ptr(mode) };
    enable(Facility::open(name, mode))
}

/// Sends messages to the system's log, debug messages with this priority and errors with `LOG_ERR`.
#[unsafe(no_mangle)]
extern "C" fn gossip_enable_syslog(priority: c_int) -> c_int {
    enable(Ok(Facility::Syslog(priority)))
}

/// Closes the facility and disables debug messages; errors go to the standard error stream.
#[unsafe(no_mangle)]
extern "C" fn gossip_disable() -> c_int {
    gossip::disable();
    enable(Ok(Facility::Stderr))
}

#[unsafe(no_mangle)]
extern "C" fn gossip_set_debug_mask(debug_on: c_int, mask: u64) -> c_int {
    match debug_on {
        0 => gossip::disable(),
        1 => gossip::set_debug_mask(Mask(mask)),
        _ => return -EINVAL,
    }
    gossip::set_debug_output(facility::print_debug);
    0
}

/// # Safety
/// `debug_on` and `mask` are null or may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn gossip_get_debug_mask(debug_on: *mut c_int, mask: *mut u64) -> c_int {
    let enabled = gossip::debug_mask().0;
    if !debug_on.is_null() {
        // SAFETY: the pointer is not null, and the caller promises that it may be written.
        unsafe { debug_on.write((enabled != 0).into()) };
    }
    if !mask.is_null() {
        // SAFETY: as above.
        unsafe { mask.write(enabled) };
    }
    0
}

/// Sets the stamp in front of each message (`enum gossip_logstamp`).
#[unsafe(no_mangle)]
extern "C" fn gossip_set_logstamp(stamp: c_int) -> c_int {
    match Stamp::from_raw(stamp) {
        Some(stamp) => {
            facility::set_stamp(stamp);
            0
        }
        None => -EINVAL,
    }
}

/// Prints a message of the application, which `gossip.h` has formatted.
///
/// # Safety
/// The text ends with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn gossip_print(prefix: c_char, text: *const c_char) -> c_int {
    if text.is_null() {
        return -EINVAL;
    }
    // SAFETY: the pointer is not null, and the caller promises the zero.
    let text = unsafe { CStr::from_ptr(text) };
    let printed = catch_unwind(|| facility::print(prefix as u8, text.to_bytes()));
    printed.map_or(-EIO, |()| 0)
}

/// Prints the call stack.
#[unsafe(no_mangle)]
extern "C" fn gossip_backtrace() {
    // The function returns nothing, so a panic cannot be reported.
    let _ = catch_unwind(|| {
        for line in Backtrace::force_capture().to_string().lines() {
            facility::print(b'E', format!("\t[bt] {}\n", line.trim()).as_bytes());
        }
    });
}
