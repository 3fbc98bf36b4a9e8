//! Options (`BMI_set_info`, `BMI_get_info`), and codes and texts of error numbers.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use selvedge_bmi::method::Setting;
use selvedge_bmi::support::heap::HeapBuf;
use selvedge_bmi::{Addr, Bmi, Code, Limit, Result, transports};

use crate::status::{call, error_status, guarded};

/// The options, such as `BMI_DROP_ADDR`, with the numbers of both dialects. A number that the
/// dialects use differently is documented.
mod option {
    pub(super) const DROP_ADDR: i32 = 1;
    pub(super) const CHECK_INIT: i32 = 2;
    pub(super) const CHECK_MAXSIZE: i32 = 3;
    pub(super) const INC_ADDR_REF: i32 = 5;
    pub(super) const DEC_ADDR_REF: i32 = 6;
    pub(super) const DROP_ADDR_QUERY: i32 = 7;
    pub(super) const FORCEFUL_CANCEL_MODE: i32 = 8;
    pub(super) const GET_UNEXP_SIZE: i32 = 10;
    pub(super) const TCP_BUFFER_SEND_SIZE: i32 = 11;
    pub(super) const TCP_BUFFER_RECEIVE_SIZE: i32 = 12;
    pub(super) const TCP_CLOSE_SOCKET: i32 = 13;
    pub(super) const OPTIMISTIC_BUFFER_REG: i32 = 14;
    pub(super) const TCP_CHECK_UNEXPECTED: i32 = 15;
    /// `BMI_get_info`: the transports, in OrangeFS. `BMI_set_info`: a timeout of the method ZOID.
    pub(super) const TRANSPORT_METHODS_STRING_OFS: i32 = 16;
    pub(super) const TRANSPORT_METHODS_STRING: i32 = 17;
    pub(super) const TCP_GET_PORT: i32 = 18;
}

/// # Safety
/// `inout_parameter` is null or points to the type that the option takes.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_set_info(addr: i64, option: c_int, inout_parameter: *mut c_void) -> c_int {
    call(|bmi| {
        let addr = Addr(addr);
        // SAFETY: passed on from the caller; these options take a number.
        let number = || unsafe { read_number(inout_parameter) };
        match option {
            option::DROP_ADDR | option::TCP_CLOSE_SOCKET => bmi.drop_addr(addr)?,
            option::INC_ADDR_REF => bmi.inc_addr_ref(addr)?,
            option::DEC_ADDR_REF => bmi.dec_addr_ref(addr)?,
            option::FORCEFUL_CANCEL_MODE => bmi.set_info(addr, Setting::ForcefulCancel)?,
            option::TCP_BUFFER_SEND_SIZE => {
                bmi.set_info(addr, Setting::SendBuffer(to_size(number()?)?))?;
            }
            option::TCP_BUFFER_RECEIVE_SIZE => {
                bmi.set_info(addr, Setting::ReceiveBuffer(to_size(number()?)?))?;
            }
            option::TCP_CHECK_UNEXPECTED => bmi.interrupt_on_unexpected(number()? != 0),
            // Ignored hints: memory is not registered ahead, and the method ZOID does not exist.
            option::OPTIMISTIC_BUFFER_REG | option::TRANSPORT_METHODS_STRING_OFS => {}
            _ => return Err(Code::ENOSYS),
        }
        Ok(0)
    })
}

/// # Safety
/// `parameter` is null or points to an `int`.
unsafe fn read_number(parameter: *mut c_void) -> Result<c_int> {
    if parameter.is_null() {
        return Err(Code::EINVAL);
    }
    // SAFETY: the pointer is not null, and the caller promises the `int`.
    Ok(unsafe { parameter.cast::<c_int>().read() })
}

fn to_size(number: c_int) -> Result<usize> {
    usize::try_from(number).map_err(|_| Code::EINVAL)
}

/// # Safety
/// `inout_parameter` is null or points to the type that the option returns.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_get_info(addr: i64, option: c_int, inout_parameter: *mut c_void) -> c_int {
    if matches!(
        option,
        option::TRANSPORT_METHODS_STRING | option::TRANSPORT_METHODS_STRING_OFS
    ) {
        // SAFETY: passed on from the caller; this option returns a text.
        return guarded(|| unsafe { write_transports(inout_parameter.cast()) });
    }
    call(|bmi| {
        let number = option_value(bmi, Addr(addr), option)?;
        if option == option::CHECK_INIT {
            return Ok(0);
        }
        if inout_parameter.is_null() {
            return Err(Code::EINVAL);
        }
        // SAFETY: the pointer is not null, and all other options return a number.
        unsafe { inout_parameter.cast::<c_int>().write(number) };
        Ok(0)
    })
}

/// The number that an option returns.
fn option_value(bmi: &Bmi, addr: Addr, option: c_int) -> Result<c_int> {
    let in_range = |size: u64| c_int::try_from(size).unwrap_or(c_int::MAX);
    match option {
        option::CHECK_INIT => {
            if bmi.is_active() {
                Ok(0)
            } else {
                Err(Code::ENETDOWN)
            }
        }
        option::CHECK_MAXSIZE => bmi.limit(Limit::Size).map(in_range),
        option::GET_UNEXP_SIZE => bmi.limit(Limit::Unexpected(addr)).map(in_range),
        option::DROP_ADDR_QUERY => bmi.is_disconnected(addr).map(c_int::from),
        option::TCP_GET_PORT => bmi.listen_port().map(c_int::from),
        _ => Err(Code::ENOSYS),
    }
}

/// Writes the schemes as a text that the caller frees, and returns their number.
///
/// # Safety
/// `text` is null or may be written.
unsafe fn write_transports(text: *mut *mut c_char) -> Result<c_int> {
    if text.is_null() {
        return Err(Code::EINVAL);
    }
    let modules = selvedge_bmi::fabric::modules();
    let mut schemes = transports(modules).into_bytes();
    schemes.push(0);
    let copy = HeapBuf::copy_of(&schemes).ok_or(Code::ENOMEM)?;
    // SAFETY: the pointer is not null, and the caller promises that it may be written.
    unsafe { text.write(copy.into_raw().cast()) };
    Ok(modules.len() as c_int)
}

/// The code of an error number of the system, with the same sign.
#[unsafe(no_mangle)]
extern "C" fn bmi_errno_to_pvfs(error: c_int) -> c_int {
    match error {
        0 => 0,
        1.. => Code::of_system(error).as_raw(),
        _ => error_status(Code::of_system(error.saturating_neg())),
    }
}

/// The text of a code of either sign.
#[unsafe(no_mangle)]
extern "C" fn bmi_status_string(error: c_int) -> *const c_char {
    static TEXTS: OnceLock<Vec<CString>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let texts = Code::ALL.iter().map(|code| code.to_string());
        texts
            .map(|text| CString::new(text).unwrap_or_default())
            .collect()
    });
    let code = Code::from_raw(error.saturating_abs());
    match Code::ALL.iter().position(|other| *other == code) {
        Some(index) => texts[index].as_ptr(),
        None if error == 0 => c"success".as_ptr(),
        None => c"unknown error".as_ptr(),
    }
}
