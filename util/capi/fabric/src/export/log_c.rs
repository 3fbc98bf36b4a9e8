//! Log messages of libfabric's own providers, and constant texts for C. A provider of libfabric
//! logs through the library that has loaded it.

#![expect(unsafe_code, reason = "texts of C")]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, Metadata, Record};
use selvedge::log::SUBSYSTEMS;

use crate::process::registry;

unsafe extern "C" {
    /// vsnprintf(3), declared here because Rust's type for its argument list is not stable.
    fn vsnprintf(buf: *mut c_char, len: usize, format: *const c_char, list: *mut c_void) -> c_int;
}

/// Limit of a message in bytes; a longer message is truncated.
const MAX_MESSAGE: usize = 1024;

/// Returns a copy of a text for C, which stays valid as long as the process runs.
pub(crate) fn constant(text: &'static str) -> *const c_char {
    static TEXTS: Mutex<Option<HashMap<&'static str, CString>>> = Mutex::new(None);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = texts.get_or_insert_default();
    let new_text = || CString::new(text).unwrap_or_default();
    texts.entry(text).or_insert_with(new_text).as_ptr()
}

/// Returns whether messages of this provider, level and subsystem are printed.
///
/// # Safety
/// `prov` is NULL or points to a provider of libfabric.
pub(crate) unsafe fn is_enabled(prov: *const c_void, level: c_int, subsys: c_int) -> bool {
    registry();
    // SAFETY: passed on from the caller.
    let target = unsafe { target(prov, subsys) };
    let metadata = Metadata::builder()
        .level(log_level(level))
        .target(&target)
        .build();
    log::logger().enabled(&metadata)
}

/// Prints a message, if its level is enabled.
///
/// # Safety
/// `prov` is NULL or points to a provider of libfabric; `func` is NULL or a string.
pub(crate) unsafe fn log_message(
    prov: *const c_void,
    level: c_int,
    subsys: c_int,
    func: *const c_char,
    line: c_int,
    text: &str,
) {
    // SAFETY: passed on from the caller.
    let target = unsafe { target(prov, subsys) };
    // SAFETY: passed on from the caller.
    let func = unsafe { crate::pointer::text(func) }
        .ok()
        .flatten()
        .unwrap_or_default();
    let text = text.trim_end();
    let logger = log::logger();
    logger.log(
        &Record::builder()
            .level(log_level(level))
            .target(&target)
            .args(format_args!("{func}():{line}: {text}"))
            .build(),
    );
}

/// The level that has a number in libfabric, whose first level is a warning.
const fn log_level(level: c_int) -> Level {
    match level {
        ..=0 => Level::Warn,
        1 => Level::Trace,
        2 => Level::Info,
        _ => Level::Debug,
    }
}

/// # Safety
/// As [`is_enabled`].
unsafe fn target(prov: *const c_void, subsys: c_int) -> String {
    // libfabric numbers the subsystems in the same order.
    let index = usize::try_from(subsys).ok();
    let subsystem = index
        .and_then(|index| SUBSYSTEMS.get(index))
        .unwrap_or(&SUBSYSTEMS[0]);
    // SAFETY: passed on from the caller.
    let name = unsafe { provider_name(prov) };
    format!("selvedge::{}::{subsystem}", name.unwrap_or("core"))
}

/// `struct fi_provider` up to its name.
#[repr(C)]
struct ProviderHead {
    version: u32,
    fi_version: u32,
    context: [*mut c_void; 4],
    name: *const c_char,
}

/// The name of a provider of libfabric.
///
/// # Safety
/// As [`is_enabled`].
pub(crate) unsafe fn provider_name<'a>(prov: *const c_void) -> Option<&'a str> {
    // SAFETY: passed on from the caller.
    let head = unsafe { prov.cast::<ProviderHead>().as_ref() }?;
    // SAFETY: a provider's name is a string.
    unsafe { crate::pointer::text(head.name) }.ok().flatten()
}

/// Formats a message of C with its arguments; without a list, the format itself.
///
/// # Safety
/// `format` is NULL or a string; `list` is NULL or has the arguments that the format requires.
pub(crate) unsafe fn format_message(format: *const c_char, list: *mut c_void) -> String {
    if format.is_null() {
        return String::new();
    }
    if list.is_null() {
        // SAFETY: `format` is not NULL, so the caller vouches for the string.
        return unsafe { CStr::from_ptr(format) }
            .to_string_lossy()
            .into_owned();
    }
    let mut text = vec![0_u8; MAX_MESSAGE];
    // SAFETY: `text` has the length that is passed; the caller vouches for the format and its list.
    unsafe { vsnprintf(text.as_mut_ptr().cast(), MAX_MESSAGE, format, list) };
    let end = text
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(MAX_MESSAGE);
    String::from_utf8_lossy(&text[..end]).into_owned()
}

/// Rate limit of a message: `None` if the message must not be printed yet, otherwise the time
/// before which it must not be printed again. `last` and the result are in milliseconds since 1970.
pub(crate) fn next_time(last: u64) -> Option<u64> {
    const INTERVAL: u64 = 2000;
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    (now >= last).then_some(now + INTERVAL)
}
