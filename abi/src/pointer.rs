//! Reads and writes at pointers that C passes: to structures that C has filled in, and to memory
//! for results.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::{ptr, slice};

use selvedge::{Errno, Result};

/// The structure at a pointer.
///
/// # Errors
/// [`Errno::Inval`] for NULL.
///
/// # Safety
/// `at` is NULL or points to a `T`, which is not written for `'a`.
#[inline]
pub unsafe fn required<'a, T>(at: *const T) -> Result<&'a T> {
    // SAFETY: passed on from the caller.
    unsafe { at.as_ref() }.ok_or(Errno::Inval)
}

/// The array at a pointer, which may be NULL for an empty array.
///
/// # Errors
/// [`Errno::Inval`] for NULL, and for more than memory can hold.
///
/// # Safety
/// `at` is NULL or points to `count` elements, which are not written for `'a`.
#[inline]
pub unsafe fn list<'a, T>(at: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let is_possible = count <= isize::MAX.cast_unsigned() / size_of::<T>().max(1);
    if at.is_null() || !is_possible {
        return Err(Errno::Inval);
    }
    // SAFETY: it is not NULL and no longer than memory; the caller vouches for the elements.
    Ok(unsafe { slice::from_raw_parts(at, count) })
}

/// The array at a pointer; an empty array for NULL.
///
/// # Errors
/// As [`list`], but for NULL.
///
/// # Safety
/// As [`list`].
#[inline]
pub unsafe fn optional<'a, T>(at: *const T, count: usize) -> Result<&'a [T]> {
    let count = if at.is_null() { 0 } else { count };
    // SAFETY: passed on from the caller.
    unsafe { list(at, count) }
}

/// Uninitialised memory for an array of results. Programs may pass memory that holds no values yet.
///
/// # Errors
/// As [`list`].
///
/// # Safety
/// `at` is NULL or points to `count` elements, which nothing else uses for `'a`.
#[inline]
pub unsafe fn output<'a, T>(at: *mut T, count: usize) -> Result<&'a mut [MaybeUninit<T>]> {
    if count == 0 {
        return Ok(&mut []);
    }
    let is_possible = count <= isize::MAX.cast_unsigned() / size_of::<T>().max(1);
    if at.is_null() || !is_possible {
        return Err(Errno::Inval);
    }
    // SAFETY: it is not NULL and no longer than memory; the caller vouches for the elements, and any
    // bytes are a `MaybeUninit`.
    Ok(unsafe { slice::from_raw_parts_mut(at.cast(), count) })
}

/// Memory for an array of results, initialised with a value so that safe code can borrow it.
///
/// # Errors
/// As [`list`].
///
/// # Safety
/// As [`output`].
#[inline]
pub unsafe fn filled<'a, T: Copy>(at: *mut T, count: usize, value: T) -> Result<&'a mut [T]> {
    // SAFETY: passed on from the caller.
    let room = unsafe { output(at, count) }?;
    for element in &mut *room {
        element.write(value);
    }
    // SAFETY: every element was just written.
    Ok(unsafe { room.assume_init_mut() })
}

/// The text at a pointer; `None` for NULL.
///
/// # Errors
/// [`Errno::Inval`] for bytes that are not UTF-8.
///
/// # Safety
/// `at` is NULL or points to a string that ends with a zero and is not written for `'a`.
pub unsafe fn text<'a>(at: *const c_char) -> Result<Option<&'a str>> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not NULL, so the caller vouches for the string.
    let text = unsafe { CStr::from_ptr(at) };
    text.to_str().map(Some).map_err(|_| Errno::Inval)
}

/// Writes a result to a pointer of C.
///
/// # Errors
/// [`Errno::Inval`] for NULL.
///
/// # Safety
/// `at` is NULL or may be written.
#[inline]
pub unsafe fn put<T>(at: *mut T, value: T) -> Result {
    if at.is_null() {
        return Err(Errno::Inval);
    }
    // SAFETY: it is not NULL, so the caller vouches for the memory.
    unsafe { at.write(value) };
    Ok(())
}

/// A copy of the first `size` bytes of a structure, which may have been shorter when the program
/// was built; the rest of the copy is zero.
///
/// # Errors
/// [`Errno::Inval`] for NULL.
///
/// # Safety
/// `at` is NULL or points to `size` bytes of a `T`; zeros are a valid `T`.
pub unsafe fn prefix<T: Copy>(at: *const T, size: usize) -> Result<T> {
    if at.is_null() {
        return Err(Errno::Inval);
    }
    let mut whole = MaybeUninit::<T>::zeroed();
    let size = size.min(size_of::<T>());
    // SAFETY: the caller vouches for `size` bytes at `at`, and `whole` has room for as many.
    unsafe { ptr::copy_nonoverlapping(at.cast::<u8>(), whole.as_mut_ptr().cast(), size) };
    // SAFETY: zeros are a `T`, and the bytes copied over them were part of one.
    Ok(unsafe { whole.assume_init() })
}

/// The member at a byte offset of a structure whose other members may be uninitialised.
///
/// # Safety
/// A `T` is at `offset` of the structure that `at` points to.
pub unsafe fn member<S, T: Copy>(at: *const S, offset: usize) -> T {
    let member = at.cast::<u8>().wrapping_add(offset).cast::<T>();
    // SAFETY: the caller vouches for the member.
    unsafe { member.read_unaligned() }
}

/// Copies as many bytes as there is room for, and writes the full length to `len`.
///
/// # Errors
/// [`Errno::Inval`] for a length at NULL; [`Errno::TooSmall`] for bytes that do not fit, after
/// copying the beginning.
///
/// # Safety
/// `len` is NULL or points to a length, and `at` points to as many bytes that may be written.
pub unsafe fn fill(at: *mut u8, len: *mut usize, bytes: &[u8]) -> Result {
    // SAFETY: passed on from the caller.
    let had = *unsafe { required(len) }?;
    let fits = bytes.len().min(had);
    // SAFETY: passed on from the caller.
    let room = unsafe { output(at, fits) }?;
    room.write_copy_of_slice(&bytes[..fits]);
    // SAFETY: it was read just now.
    unsafe { put(len, bytes.len()) }?;
    if had < bytes.len() {
        return Err(Errno::TooSmall);
    }
    Ok(())
}
