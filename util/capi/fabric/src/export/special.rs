//! Functions for parameters, for log messages of libfabric's own providers, and `fi_open`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_char, c_int, c_void};

use selvedge::Errno;
use selvedge_abi::{Fid, Param};

use super::{log_c, param};
use crate::status::{error_status, guarded_unit};

/// `fi_open`: fails with `FI_ENOSYS`, because no object is opened by name.
///
/// # Safety
/// The arguments are not read.
pub unsafe extern "C" fn open(
    _version: u32,
    _name: *const c_char,
    _attr: *mut c_void,
    _attr_len: usize,
    _flags: u64,
    _fid: *mut *mut Fid,
    _context: *mut c_void,
) -> c_int {
    error_status(Errno::NoSys)
}

/// `fi_getparams`.
///
/// # Safety
/// `params` and `count` are NULL or may be written.
pub unsafe extern "C" fn getparams(params: *mut *mut Param, count: *mut c_int) -> c_int {
    // SAFETY: passed on from the caller.
    guarded_unit(|| unsafe { param::list_params(params, count) })
}

/// `fi_freeparams`.
///
/// # Safety
/// `params` is NULL or came from [`getparams`], and is not used any more.
pub unsafe extern "C" fn freeparams(params: *mut Param) {
    guarded_unit(|| {
        // SAFETY: passed on from the caller.
        unsafe { param::free(params) };
        Ok(())
    });
}

/// `fi_param_get`.
///
/// # Safety
/// The caller follows fi_provider(3): it passes a provider or NULL, a name, and memory for a value
/// of the declared type.
pub unsafe extern "C" fn param_get(
    provider: *mut c_void,
    name: *const c_char,
    value: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    guarded_unit(|| unsafe { param::get(provider, name, value) })
}

/// `fi_param_define`, with the arguments of its help text as a C argument list.
///
/// # Safety
/// The caller follows fi_provider(3); `list` belongs to the format.
pub unsafe extern "C" fn param_define(
    provider: *const c_void,
    name: *const c_char,
    kind: u32,
    help: *const c_char,
    list: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let help = unsafe { log_c::format_message(help, list) };
    // SAFETY: passed on from the caller.
    guarded_unit(|| unsafe { param::define(provider, name, kind, help) })
}

/// `fi_log`, with the arguments of its text as a C argument list.
///
/// # Safety
/// The caller follows fi_provider(3); `list` belongs to the format.
pub unsafe extern "C" fn log_text(
    prov: *const c_void,
    level: c_int,
    subsys: c_int,
    func: *const c_char,
    line: c_int,
    format: *const c_char,
    list: *mut c_void,
) {
    // SAFETY: passed on from the caller.
    let text = unsafe { log_c::format_message(format, list) };
    guarded_unit(|| {
        // SAFETY: passed on from the caller.
        unsafe { log_c::log_message(prov, level, subsys, func, line, &text) };
        Ok(())
    });
}

#[cfg(not(target_arch = "x86_64"))]
pub use without_arguments::{log_without_arguments, param_define_without_arguments};

/// The same functions without argument lists, for architectures without the assembler of `symbols`.
#[cfg(not(target_arch = "x86_64"))]
mod without_arguments {
    use super::*;

    /// # Safety
    /// As [`param_define`].
    pub unsafe extern "C" fn param_define_without_arguments(
        provider: *const c_void,
        name: *const c_char,
        kind: u32,
        help: *const c_char,
    ) -> c_int {
        // SAFETY: passed on from the caller.
        unsafe { param_define(provider, name, kind, help, std::ptr::null_mut()) }
    }

    /// # Safety
    /// As [`log_text`].
    pub unsafe extern "C" fn log_without_arguments(
        prov: *const c_void,
        level: c_int,
        subsys: c_int,
        func: *const c_char,
        line: c_int,
        format: *const c_char,
    ) {
        // SAFETY: passed on from the caller.
        unsafe {
            log_text(
                prov,
                level,
                subsys,
                func,
                line,
                format,
                std::ptr::null_mut(),
            )
        }
    }
}
