//! Posting.

#![expect(unsafe_code, reason = "the C interface")]

use std::ffi::{c_int, c_void};

use selvedge::{Iov, IovMut};
use selvedge_bmi::{Addr, Code, OpId, Post, Posted, Result};

use crate::answer::{call, count};
use crate::seed;

/// What the posts of C have in common: where the id goes, who the peer is, and so on.
struct Call<P> {
    id: *mut i64,
    peer: i64,
    pieces: P,
    tag: i32,
    user_ptr: *mut c_void,
    context: i64,
    /// The class of an unexpected message.
    class: Option<u8>,
}

/// # Safety
/// The id may be written; the pieces are valid as [`selvedge_bmi::Bmi::post_send_raw`] asks for.
#[inline]
unsafe fn send(call_: &Call<&[Iov]>) -> c_int {
    call(|bmi| {
        if call_.id.is_null() {
            return Err(Code::EINVAL);
        }
        let context = seed::context(bmi, call_.context)?;
        let post = Post::new(Addr(call_.peer), call_.pieces, call_.tag, context)
            .with_user(call_.user_ptr.addr() as u64);
        // SAFETY: not null, and the caller promises that it may be written.
        let store = |id: OpId| unsafe { call_.id.write(id.0) };
        let posted = match call_.class {
            // SAFETY: passed on from the caller.
            None => unsafe { bmi.post_send_raw(&post, store) },
            // SAFETY: as above.
            Some(class) => unsafe { bmi.post_sendunexpected_raw(&post, class, store) },
        };
        // SAFETY: as for `store`.
        unsafe { conclude(&posted, call_.id, std::ptr::null_mut()) }
    })
}

/// # Safety
/// The id and the size may be written; the pieces are valid as
/// [`selvedge_bmi::Bmi::post_recv_raw`] asks for.
#[inline]
unsafe fn recv(call_: &Call<&[IovMut]>, actual_size: *mut i64) -> c_int {
    call(|bmi| {
        if call_.id.is_null() || actual_size.is_null() {
            return Err(Code::EINVAL);
        }
        let context = seed::context(bmi, call_.context)?;
        let post = Post::new(Addr(call_.peer), call_.pieces, call_.tag, context)
            .with_user(call_.user_ptr.addr() as u64);
        // SAFETY: not null, and the caller promises that both may be written.
        let store = |id: OpId| unsafe { call_.id.write(id.0) };
        // SAFETY: passed on from the caller.
        let posted = unsafe { bmi.post_recv_raw(&post, store) };
        // SAFETY: as for `store`.
        unsafe { conclude(&posted, call_.id, actual_size) }
    })
}

/// Says what became of a post: 0 and an id, or 1 and a size.
///
/// # Safety
/// `id` may be written, and so may `size` unless it is null.
#[inline]
unsafe fn conclude(posted: &Result<Posted>, id: *mut i64, size: *mut i64) -> Result<c_int> {
    let (answer, len) = match posted {
        Ok(Posted::Pending(_)) => (Ok(0), 0),
        Ok(Posted::Done(len)) => (Ok(1), *len),
        Err(code) => (Err(*code), 0),
    };
    if !matches!(answer, Ok(0)) {
        // No test knows of it.
        // SAFETY: the caller promises that it may be written.
        unsafe { id.write(0) };
    }
    if !size.is_null() {
        // SAFETY: as above.
        unsafe { size.write(len as i64) };
    }
    answer
}

/// One piece of memory.
///
/// # Errors
/// [`Code::EINVAL`] for a size below zero, and for bytes at no address.
#[inline]
fn checked(buffer: *const c_void, size: i64) -> Result<usize> {
    match usize::try_from(size) {
        Ok(size) if size == 0 || !buffer.is_null() => Ok(size),
        _ => Err(Code::EINVAL),
    }
}

/// A list of pieces; its sizes have to add up to `total`.
///
/// # Errors
/// As [`checked`]; [`Code::EINVAL`] for a count below zero, lists at no address, and another sum.
///
/// # Safety
/// The lists are null or have `list_count` members.
unsafe fn list<T>(
    buffer_list: *const *const c_void,
    size_list: *const i64,
    list_count: c_int,
    total: i64,
    piece: impl Fn(*const c_void, usize) -> T,
) -> Result<Vec<T>> {
    let members = count(list_count)?;
    if members > 0 && (buffer_list.is_null() || size_list.is_null()) {
        return Err(Code::EINVAL);
    }
    let mut sum = 0_i64;
    let mut pieces = Vec::with_capacity(members);
    for member in 0..members {
        // SAFETY: not null, and the caller promises that there are so many members.
        let buffer = unsafe { buffer_list.wrapping_add(member).read() };
        // SAFETY: as above.
        let size = unsafe { size_list.wrapping_add(member).read() };
        pieces.push(piece(buffer, checked(buffer, size)?));
        sum = sum.checked_add(size).ok_or(Code::EINVAL)?;
    }
    match sum == total {
        true => Ok(pieces),
        false => Err(Code::EINVAL),
    }
}

/// Answers a refusal before anything was posted.
macro_rules! or_refuse {
    ($checked:expr) => {
        match $checked {
            Ok(value) => value,
            Err(code) => return crate::answer::refusal(code),
        }
    };
}

/// # Safety
/// `id` may be written; the buffer stays valid and unwritten until the operation was tested as done,
/// or the post returns something other than 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_send(
    id: *mut i64,
    dest: i64,
    buffer: *const c_void,
    size: i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context_id: i64,
    _hints: *mut c_void,
) -> c_int {
    let pieces = &[Iov::from_raw(buffer, or_refuse!(checked(buffer, size)))];
    // SAFETY: passed on from the caller.
    unsafe {
        send(&Call {
            id,
            peer: dest,
            pieces,
            tag,
            user_ptr,
            context: context_id,
            class: None,
        })
    }
}

/// # Safety
/// As `BMI_post_send`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected_class(
    id: *mut i64,
    dest: i64,
    buffer: *const c_void,
    size: i64,
    _buffer_type: c_int,
    tag: i32,
    class: u8,
    user_ptr: *mut c_void,
    context_id: i64,
    _hints: *mut c_void,
) -> c_int {
    let pieces = &[Iov::from_raw(buffer, or_refuse!(checked(buffer, size)))];
    // SAFETY: passed on from the caller.
    unsafe {
        send(&Call {
            id,
            peer: dest,
            pieces,
            tag,
            user_ptr,
            context: context_id,
            class: Some(class),
        })
    }
}

/// # Safety
/// As `BMI_post_send`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected(
    id: *mut i64,
    dest: i64,
    buffer: *const c_void,
    size: i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context_id: i64,
    hints: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        BMI_post_sendunexpected_class(
            id,
            dest,
            buffer,
            size,
            buffer_type,
            tag,
            0,
            user_ptr,
            context_id,
            hints,
        )
    }
}

/// # Safety
/// `id` and `actual_size` may be written; the buffer stays valid, and nobody else uses it, until
/// the operation was tested as done, or the post returns something other than 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_recv(
    id: *mut i64,
    src: i64,
    buffer: *mut c_void,
    expected_size: i64,
    actual_size: *mut i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context_id: i64,
    _hints: *mut c_void,
) -> c_int {
    let len = or_refuse!(checked(buffer, expected_size));
    let pieces = &[IovMut::from_raw(buffer, len)];
    // SAFETY: passed on from the caller.
    unsafe {
        recv(
            &Call {
                id,
                peer: src,
                pieces,
                tag,
                user_ptr,
                context: context_id,
                class: None,
            },
            actual_size,
        )
    }
}

/// # Safety
/// As `BMI_post_send`, for each buffer of the list; the lists have `list_count` members.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_send_list(
    id: *mut i64,
    dest: i64,
    buffer_list: *const *const c_void,
    size_list: *const i64,
    list_count: c_int,
    total_size: i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context_id: i64,
    _hints: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let pieces = unsafe {
        list(
            buffer_list,
            size_list,
            list_count,
            total_size,
            Iov::from_raw,
        )
    };
    // SAFETY: as above.
    unsafe {
        send(&Call {
            id,
            peer: dest,
            pieces: &or_refuse!(pieces),
            tag,
            user_ptr,
            context: context_id,
            class: None,
        })
    }
}

/// # Safety
/// As `BMI_post_send_list`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected_list_class(
    id: *mut i64,
    dest: i64,
    buffer_list: *const *const c_void,
    size_list: *const i64,
    list_count: c_int,
    total_size: i64,
    _buffer_type: c_int,
    tag: i32,
    class: u8,
    user_ptr: *mut c_void,
    context_id: i64,
    _hints: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let pieces = unsafe {
        list(
            buffer_list,
            size_list,
            list_count,
            total_size,
            Iov::from_raw,
        )
    };
    // SAFETY: as above.
    unsafe {
        send(&Call {
            id,
            peer: dest,
            pieces: &or_refuse!(pieces),
            tag,
            user_ptr,
            context: context_id,
            class: Some(class),
        })
    }
}

/// # Safety
/// As `BMI_post_send_list`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_sendunexpected_list(
    id: *mut i64,
    dest: i64,
    buffer_list: *const *const c_void,
    size_list: *const i64,
    list_count: c_int,
    total_size: i64,
    buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context_id: i64,
    hints: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe {
        BMI_post_sendunexpected_list_class(
            id,
            dest,
            buffer_list,
            size_list,
            list_count,
            total_size,
            buffer_type,
            tag,
            0,
            user_ptr,
            context_id,
            hints,
        )
    }
}

/// # Safety
/// As `BMI_post_recv`, for each buffer of the list; the lists have `list_count` members.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_post_recv_list(
    id: *mut i64,
    src: i64,
    buffer_list: *const *const c_void,
    size_list: *const i64,
    list_count: c_int,
    total_expected_size: i64,
    total_actual_size: *mut i64,
    _buffer_type: c_int,
    tag: i32,
    user_ptr: *mut c_void,
    context_id: i64,
    _hints: *mut c_void,
) -> c_int {
    let piece = |buffer: *const c_void, len| IovMut::from_raw(buffer.cast_mut(), len);
    // SAFETY: passed on from the caller.
    let pieces = unsafe {
        list(
            buffer_list,
            size_list,
            list_count,
            total_expected_size,
            piece,
        )
    };
    // SAFETY: as above.
    unsafe {
        recv(
            &Call {
                id,
                peer: src,
                pieces: &or_refuse!(pieces),
                tag,
                user_ptr,
                context: context_id,
                class: None,
            },
            total_actual_size,
        )
    }
}
