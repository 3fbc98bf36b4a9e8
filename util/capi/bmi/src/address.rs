//! Addresses: the functions that look up and name peers.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{CStr, c_char, c_int};

use selvedge_bmi::{Addr, Code, process};

use crate::gossip;
use crate::lifecycle::read_text;
use crate::status::{call, guarded};

/// # Safety
/// `new_addr` is null or may be written; `id_string` is null or ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_addr_lookup(new_addr: *mut i64, id_string: *const c_char) -> c_int {
    call(|bmi| {
        if new_addr.is_null() {
            return Err(Code::EINVAL);
        }
        // SAFETY: passed on from the caller.
        let url = unsafe { read_text(id_string) }?.ok_or(Code::EINVAL)?;
        let addr = bmi.addr_lookup(&url).map_err(|error| {
            gossip::log_error(&error.to_string());
            error.code()
        })?;
        // SAFETY: the pointer is not null, and the caller promises that it may be written.
        unsafe { new_addr.write(addr.0) };
        Ok(0)
    })
}

/// The result of [`BMI_addr_rev_lookup_unexpected`] for an address without a peer.
const UNKNOWN_PEER: &CStr = c"UNKNOWN";

#[unsafe(no_mangle)]
extern "C" fn BMI_addr_rev_lookup(addr: i64) -> *const c_char {
    names_of(addr).0
}

#[unsafe(no_mangle)]
extern "C" fn BMI_addr_rev_lookup_unexpected(addr: i64) -> *const c_char {
    match names_of(addr).1 {
        null if null.is_null() => UNKNOWN_PEER.as_ptr(),
        text => text,
    }
}

/// The URL and the host of a peer. The instance owns both texts until it forgets the peer.
fn names_of(addr: i64) -> (*const c_char, *const c_char) {
    let mut names = (std::ptr::null(), std::ptr::null());
    guarded(|| {
        process::with(|bmi| {
            let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
            bmi.with_names(Addr(addr), &mut |url, host| {
                names = (pointer(url), pointer(host))
            });
        })?;
        Ok(0)
    });
    names
}

/// # Safety
/// `id_string` is null or ends with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_query_addr_range(
    addr: i64,
    id_string: *const c_char,
    netmask: c_int,
) -> c_int {
    call(|bmi| {
        // SAFETY: passed on from the caller.
        let pattern = unsafe { read_text(id_string) }?.ok_or(Code::EINVAL)?;
        let bits = match netmask {
            -1 => None,
            bits => Some(u8::try_from(bits).map_err(|_| Code::EINVAL)?),
        };
        Ok(bmi.query_addr_range(Addr(addr), &pattern, bits)?.into())
    })
}
