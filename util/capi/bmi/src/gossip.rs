//! gossip: what of the library's log is heard.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{c_char, c_int};

use selvedge_bmi::support::gossip::{self, Mask};

use crate::answer::guarded;

/// Says what kept a call from what it was asked for: C gets a number only.
#[cold]
pub(crate) fn complain(what: &str) {
    gossip::err(format_args!("{what}"));
}

/// Messages go to the standard error stream, unless the program has a logger.
#[unsafe(no_mangle)]
extern "C" fn gossip_enable_stderr() -> c_int {
    guarded(|| {
        open_log();
        Ok(0)
    })
}

/// Has messages printed from now on, unless the program has a logger.
pub(crate) fn open_log() {
    // A variable that cannot be read is reported by whoever needs it.
    let _ = selvedge::log::init();
}

/// As `gossip_enable_stderr`: there is one log, and no file of its own.
#[unsafe(no_mangle)]
extern "C" fn gossip_enable_file(_filename: *const c_char, _mode: *const c_char) -> c_int {
    gossip_enable_stderr()
}

/// As `gossip_enable_stderr`.
#[unsafe(no_mangle)]
extern "C" fn gossip_enable_syslog(_priority: c_int) -> c_int {
    gossip_enable_stderr()
}

#[unsafe(no_mangle)]
extern "C" fn gossip_set_debug_mask(debug_on: c_int, mask: u64) -> c_int {
    let mask = if debug_on == 0 { 0 } else { mask };
    gossip::set_debug_mask(Mask(mask));
    0
}

/// # Safety
/// Both are null or may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn gossip_get_debug_mask(debug_on: *mut c_int, mask: *mut u64) -> c_int {
    let heard = gossip::debug_mask().0;
    if !debug_on.is_null() {
        // SAFETY: not null, and the caller promises that it may be written.
        unsafe { debug_on.write((heard != 0).into()) };
    }
    if !mask.is_null() {
        // SAFETY: as above.
        unsafe { mask.write(heard) };
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn gossip_disable() -> c_int {
    gossip::disable();
    0
}
