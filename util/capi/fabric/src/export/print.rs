//! Texts of errors, structures and flags; the library's version; log calls.

#![expect(unsafe_code, reason = "functions of C")]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use selvedge::Errno;
use selvedge::info::Version;

use crate::export::log_c;
use crate::export::tostr::text_of;
use crate::pointer::{output_array, put};
use crate::status::guarded;

/// The size of each thread's text of `fi_tostr`, in bytes.
const TEXT_SIZE: usize = 8192;

thread_local! {
    static TEXT: RefCell<[u8; TEXT_SIZE]> = const { RefCell::new([0; TEXT_SIZE]) };
}

/// `fi_version`.
pub extern "C" fn version() -> u32 {
    Version::API.as_raw()
}

/// `fi_strerror`, for numbers of either sign. The system's own numbers have the system's texts.
pub extern "C" fn strerror(errno: c_int) -> *const c_char {
    let errno = errno.checked_abs().unwrap_or(c_int::MAX);
    match Errno::try_from_raw(errno).filter(|errno| errno.as_raw() >= Errno::Other.as_raw()) {
        Some(fabric_errno) => log_c::constant(fabric_errno.text()),
        // SAFETY: strerror accepts any number; the text stays valid until this thread's next call.
        None if errno < Errno::Other.as_raw() => unsafe { libc::strerror(errno) },
        None => log_c::constant(Errno::Other.text()),
    }
}

/// `fi_tostr`: the text stays valid until this thread's next call.
///
/// # Safety
/// `data` is NULL or points to data of this kind.
pub unsafe extern "C" fn tostr(data: *const c_void, kind: u32) -> *mut c_char {
    TEXT.with_borrow_mut(|text| {
        // SAFETY: passed on from the caller; the text does not move while the thread exists.
        unsafe { tostr_r(text.as_mut_ptr().cast(), TEXT_SIZE, data, kind) }
    })
}

/// `fi_tostr_r`: writes as much of the text as fits.
///
/// # Safety
/// `buf` is NULL or points to `len` bytes; `data` is NULL or points to data of this kind.
pub unsafe extern "C" fn tostr_r(
    buf: *mut c_char,
    len: usize,
    data: *const c_void,
    kind: u32,
) -> *mut c_char {
    let written = guarded(|| {
        if data.is_null() || len == 0 {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let text = unsafe { text_of(data, kind) }?;
        // SAFETY: passed on from the caller.
        let room = unsafe { output_array(buf.cast::<u8>(), len) }?;
        let copied_len = text.len().min(len - 1);
        room[..copied_len].write_copy_of_slice(&text.as_bytes()[..copied_len]);
        room[copied_len].write(0);
        Ok(0)
    });
    if written == 0 { buf } else { ptr::null_mut() }
}

/// `fi_log_enabled`.
///
/// # Safety
/// `prov` is NULL or points to a provider of libfabric.
pub unsafe extern "C" fn log_enabled(prov: *const c_void, level: c_int, subsys: c_int) -> c_int {
    // SAFETY: passed on from the caller.
    guarded(|| Ok(unsafe { log_c::is_enabled(prov, level, subsys) }.into()))
}

/// `fi_log_ready`: as [`log_enabled`], but true once per interval only.
///
/// # Safety
/// As [`log_enabled`]; `showtime` is NULL or points to a number.
pub unsafe extern "C" fn log_ready(
    prov: *const c_void,
    level: c_int,
    subsys: c_int,
    showtime: *mut u64,
) -> c_int {
    guarded(|| {
        // SAFETY: passed on from the caller.
        if !unsafe { log_c::is_enabled(prov, level, subsys) } {
            return Ok(0);
        }
        // SAFETY: passed on from the caller.
        let last = *unsafe { crate::pointer::required(showtime) }?;
        let Some(next) = log_c::next_time(last) else {
            return Ok(0);
        };
        // SAFETY: passed on from the caller.
        unsafe { put(showtime, next) }?;
        Ok(1)
    })
}
