//! The functions that test for completed operations and unexpected messages, and that cancel
//! operations.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{c_int, c_void};

use selvedge_bmi::{Code, Completion, OpId};

use crate::context;
use crate::status::{call, count, error_status, idle_time, test_status};

/// `struct BMI_unexpected_info`.
#[repr(C)]
pub(crate) struct UnexpectedInfo {
    error_code: i32,
    addr: i64,
    buffer: *mut c_void,
    size: i64,
    tag: i32,
}

const _: () = assert!(size_of::<UnexpectedInfo>() == 40);

/// Arrays that completions are written to, one member each.
#[derive(Clone, Copy)]
struct CompletionArrays {
    ids: *mut i64,
    errors: *mut i32,
    sizes: *mut i64,
    users: *mut *mut c_void,
}

impl CompletionArrays {
    /// Writes one completion, except to arrays that are null.
    ///
    /// # Safety
    /// Arrays that are not null have a member at `index`.
    unsafe fn write(self, index: usize, completion: &Completion) {
        let (error, size) = match completion.outcome {
            Ok(size) => (0, size as i64),
            Err(code) => (error_status(code), 0),
        };
        // SAFETY: passed on from the caller.
        unsafe { put(self.ids, index, completion.id.0) };
        // SAFETY: as above.
        unsafe { put(self.errors, index, error) };
        // SAFETY: as above.
        unsafe { put(self.sizes, index, size) };
        // SAFETY: as above.
        unsafe {
            put(
                self.users,
                index,
                std::ptr::without_provenance_mut(completion.user as usize),
            )
        };
    }
}

/// # Safety
/// `array` is null or has a member at `index`.
#[inline]
unsafe fn put<T>(array: *mut T, index: usize, value: T) {
    if !array.is_null() {
        // SAFETY: the caller promises the member.
        unsafe { array.wrapping_add(index).write(value) };
    }
}

/// # Safety
/// Every pointer is null or may be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn BMI_test(
    id: i64,
    outcount: *mut c_int,
    error_code: *mut i32,
    actual_size: *mut i64,
    user_ptr: *mut *mut c_void,
    max_idle_time_ms: c_int,
    context_id: i64,
) -> c_int {
    call(|bmi| {
        if outcount.is_null() || error_code.is_null() {
            return Err(Code::EINVAL);
        }
        // SAFETY: the pointer is not null, and the caller promises that it may be written.
        unsafe { outcount.write(0) };
        let context = context::of_argument(bmi, context_id)?;
        let Some(completion) = bmi.test(OpId(id), idle_time(max_idle_time_ms)?, context)? else {
            return Ok(0);
        };
        let out = CompletionArrays {
            ids: std::ptr::null_mut(),
            errors: error_code,
            sizes: actual_size,
            users: user_ptr,
        };
        // SAFETY: passed on from the caller.
        unsafe { out.write(0, &completion) };
        // SAFETY: as above.
        unsafe { outcount.write(1) };
        Ok(1)
    })
}

/// # Safety
/// Every array is null or has `incount` members; `outcount` is null or may be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn BMI_testsome(
    incount: c_int,
    id_array: *const i64,
    outcount: *mut c_int,
    index_array: *mut c_int,
    error_code_array: *mut i32,
    actual_size_array: *mut i64,
    user_ptr_array: *mut *mut c_void,
    max_idle_time_ms: c_int,
    context_id: i64,
) -> c_int {
    call(|bmi| {
        let members = count(incount)?;
        let has_null_array =
            id_array.is_null() || index_array.is_null() || error_code_array.is_null();
        if outcount.is_null() || (members > 0 && has_null_array) {
            return Err(Code::EINVAL);
        }
        // SAFETY: the pointer is not null, and the caller promises that it may be written.
        unsafe { outcount.write(0) };
        let context = context::of_argument(bmi, context_id)?;
        let ids: Vec<_> = (0..members)
            // SAFETY: the caller promises `incount` members.
            .map(|index| unsafe { id_array.wrapping_add(index).read() })
            .map(|id| (id != 0).then_some(OpId(id)))
            .collect();
        let out = CompletionArrays {
            ids: std::ptr::null_mut(),
            errors: error_code_array,
            sizes: actual_size_array,
            users: user_ptr_array,
        };
        let mut next = 0;
        let completed = bmi.testsome(
            &ids,
            idle_time(max_idle_time_ms)?,
            context,
            |index, completion| {
                // SAFETY: no more completions are reported than there are ids.
                unsafe { put(index_array, next, index as c_int) };
                // SAFETY: as above.
                unsafe { out.write(next, &completion) };
                next += 1;
            },
        )?;
        // SAFETY: as above.
        unsafe { outcount.write(completed as c_int) };
        Ok(test_status(completed))
    })
}

/// # Safety
/// Every array is null or has `incount` members; `outcount` is null or may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_testcontext(
    incount: c_int,
    out_id_array: *mut i64,
    outcount: *mut c_int,
    error_code_array: *mut i32,
    actual_size_array: *mut i64,
    user_ptr_array: *mut *mut c_void,
    max_idle_time_ms: c_int,
    context_id: i64,
) -> c_int {
    call(|bmi| {
        let members = count(incount)?;
        let has_null_array = out_id_array.is_null() || error_code_array.is_null();
        if outcount.is_null() || (members > 0 && has_null_array) {
            return Err(Code::EINVAL);
        }
        // SAFETY: the pointer is not null, and the caller promises that it may be written.
        unsafe { outcount.write(0) };
        let context = context::of_argument(bmi, context_id)?;
        let out = CompletionArrays {
            ids: out_id_array,
            errors: error_code_array,
            sizes: actual_size_array,
            users: user_ptr_array,
        };
        let mut next = 0;
        let completed = bmi.testcontext(
            members,
            idle_time(max_idle_time_ms)?,
            context,
            |completion| {
                // SAFETY: no more completions are reported than the caller's arrays have members.
                unsafe { out.write(next, &completion) };
                next += 1;
            },
        )?;
        // SAFETY: as above.
        unsafe { outcount.write(completed as c_int) };
        Ok(test_status(completed))
    })
}

/// # Safety
/// `info_array` is null or has `incount` members; `outcount` is null or may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_testunexpected_class(
    incount: c_int,
    outcount: *mut c_int,
    info_array: *mut UnexpectedInfo,
    class: u8,
    max_idle_time_ms: c_int,
) -> c_int {
    call(|bmi| {
        let members = count(incount)?;
        if outcount.is_null() || (members > 0 && info_array.is_null()) {
            return Err(Code::EINVAL);
        }
        // SAFETY: the pointer is not null, and the caller promises that it may be written.
        unsafe { outcount.write(0) };
        let mut next = 0;
        let message_count =
            bmi.testunexpected(members, class, idle_time(max_idle_time_ms)?, |message| {
                let size = message.buffer.len() as i64;
                let info = UnexpectedInfo {
                    error_code: 0,
                    addr: message.addr.0,
                    // From here on the caller owns the buffer, and frees it with
                    // BMI_unexpected_free, BMI_memfree or free(3).
                    buffer: message.buffer.into_raw().cast(),
                    size,
                    tag: message.tag,
                };
                // SAFETY: no more messages are reported than the caller's array has members.
                unsafe { put(info_array, next, info) };
                next += 1;
            })?;
        // SAFETY: as above.
        unsafe { outcount.write(message_count as c_int) };
        Ok(test_status(message_count))
    })
}

/// # Safety
/// As `BMI_testunexpected_class`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn BMI_testunexpected(
    incount: c_int,
    outcount: *mut c_int,
    info_array: *mut UnexpectedInfo,
    max_idle_time_ms: c_int,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { BMI_testunexpected_class(incount, outcount, info_array, 0, max_idle_time_ms) }
}

#[unsafe(no_mangle)]
extern "C" fn BMI_cancel(id: i64, _context_id: i64) -> c_int {
    call(|bmi| {
        bmi.cancel(OpId(id));
        Ok(0)
    })
}

/// Cancels an operation and collects it, without blocking. Returns 0 for a cancelled operation, 1
/// for a complete one, and the error of a failed one. Returns `-BMI_EALREADY` for an operation that
/// has begun: the operation continues, its memory stays in use, and a test reports its completion.
#[unsafe(no_mangle)]
extern "C" fn BMI_unpost(id: i64, context_id: i64) -> c_int {
    call(|bmi| {
        let context = context::of_argument(bmi, context_id)?;
        let ended = bmi.unpost(OpId(id), context)?;
        match ended.ok_or(Code::EALREADY)?.outcome {
            Err(Code::ECANCEL) => Ok(0),
            Ok(_) => Ok(1),
            Err(code) => Err(code),
        }
    })
}
