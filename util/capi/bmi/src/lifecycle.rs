//! `BMI_initialize`, `BMI_finalize`, and contexts.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{CStr, c_char, c_int};

use selvedge_bmi::{Code, Config, ContextId, Result, process};

use crate::status::{call, guarded};
use crate::{context, gossip};

const INIT_SERVER: c_int = 1;
const TCP_BIND_SPECIFIC: c_int = 2;
const AUTO_REF_COUNT: c_int = 4;

/// # Safety
/// `method_list` and `listen_addr` are null or end with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_initialize(
    method_list: *const c_char,
    listen_addr: *const c_char,
    flags: c_int,
) -> c_int {
    guarded(|| {
        gossip::open_log();
        // SAFETY: passed on from the caller.
        let methods = unsafe { read_text(method_list) }?;
        // SAFETY: as above.
        let listen = unsafe { read_text(listen_addr) }?;
        let is_server = flags & INIT_SERVER != 0;
        let is_complete = if is_server {
            methods.is_some() && listen.is_some()
        } else {
            listen.is_none()
        };
        if !is_complete {
            return Err(Code::EINVAL);
        }
        let mut config = Config::client();
        config.methods = methods.unwrap_or_default();
        config.listen = listen.unwrap_or_default();
        config.bind_specific = flags & TCP_BIND_SPECIFIC != 0;
        config.auto_ref_count = flags & AUTO_REF_COUNT != 0;
        match process::initialize(config) {
            Ok(_) => Ok(0),
            Err(error) => {
                gossip::log_error(&error.to_string());
                Err(error.code())
            }
        }
    })
}

/// Copies a text of C; `None` for a null pointer and for an empty text.
///
/// # Errors
/// [`Code::EINVAL`] for a text that is not UTF-8.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn read_text(text: *const c_char) -> Result<Option<String>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller promises the zero.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|_| Code::EINVAL)?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[unsafe(no_mangle)]
extern "C" fn BMI_finalize() -> c_int {
    guarded(|| {
        process::finalize()?;
        context::forget_default();
        Ok(0)
    })
}

/// # Safety
/// `context_id` is null or may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_open_context(context_id: *mut i64) -> c_int {
    call(|bmi| {
        if context_id.is_null() {
            return Err(Code::EINVAL);
        }
        let context = bmi.open_context()?;
        // SAFETY: the pointer is not null, and the caller promises that it may be written.
        unsafe { context_id.write(context.0) };
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn BMI_close_context(context_id: i64) {
    call(|bmi| {
        bmi.close_context(ContextId(context_id));
        Ok(0)
    });
}
