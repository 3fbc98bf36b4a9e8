//! Reads structures and arrays at pointers that C passes, and writes results to them.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::{ptr, slice};

use selvedge::{Errno, Result};

/// Returns the structure at a pointer.
///
/// # Errors
/// [`Errno::Inval`] for NULL.
///
/// # Safety
/// `ptr` is NULL or points to a `T`, which is not written for `'a`.
#[inline]
pub unsafe fn required<'a, T>(ptr: *const T) -> Result<&'a T> {
    // SAFETY: passed on from the caller.
    unsafe { ptr.as_ref() }.ok_or(Errno::Inval)
}

/// Returns the array at a pointer. The pointer may be NULL if `count` is 0.
///
/// # Errors
/// [`Errno::Inval`] for NULL, and for more elements than memory can hold.
///
/// # Safety
/// `ptr` is NULL or points to `count` elements, which are not written for `'a`.
#[inline]
pub unsafe fn array<'a, T>(ptr: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    let is_possible = count <= isize::MAX.cast_unsigned() / size_of::<T>().max(1);
    if ptr.is_null() || !is_possible {
        return Err(Errno::Inval);
    }
    // SAFETY: the array is not NULL and fits into memory; the caller vouches for the elements.
    Ok(unsafe { slice::from_raw_parts(ptr, count) })
}

/// Returns the array at a pointer; an empty array for NULL.
///
/// # Errors
/// [`Errno::Inval`] for more elements than memory can hold.
///
/// # Safety
/// As [`array()`].
#[inline]
pub unsafe fn optional_array<'a, T>(ptr: *const T, count: usize) -> Result<&'a [T]> {
    let count = if ptr.is_null() { 0 } else { count };
    // SAFETY: passed on from the caller.
    unsafe { array(ptr, count) }
}

/// Returns the memory at a pointer for an array of results, which may be uninitialised.
///
/// # Errors
/// As [`array()`].
///
/// # Safety
/// `ptr` is NULL or points to `count` elements, which no other code accesses for `'a`.
#[inline]
pub unsafe fn output_array<'a, T>(ptr: *mut T, count: usize) -> Result<&'a mut [MaybeUninit<T>]> {
    if count == 0 {
        return Ok(&mut []);
    }
    let is_possible = count <= isize::MAX.cast_unsigned() / size_of::<T>().max(1);
    if ptr.is_null() || !is_possible {
        return Err(Errno::Inval);
    }
    // SAFETY: the array is not NULL and fits into memory; the caller vouches for the elements, and
    // any bytes are a `MaybeUninit`.
    Ok(unsafe { slice::from_raw_parts_mut(ptr.cast(), count) })
}

/// Returns the memory at a pointer for an array of results, after writing `value` to every element
/// so that safe code can borrow the array.
///
/// # Errors
/// As [`array()`].
///
/// # Safety
/// As [`output_array`].
#[inline]
pub unsafe fn initialized_array<'a, T: Copy>(
    ptr: *mut T,
    count: usize,
    value: T,
) -> Result<&'a mut [T]> {
    // SAFETY: passed on from the caller.
    let room = unsafe { output_array(ptr, count) }?;
    for element in &mut *room {
        element.write(value);
    }
    // SAFETY: every element was just written.
    Ok(unsafe { room.assume_init_mut() })
}

/// Returns the text at a pointer; `None` for NULL.
///
/// # Errors
/// [`Errno::Inval`] for bytes that are not UTF-8.
///
/// # Safety
/// `ptr` is NULL or points to a string that ends with a zero and is not written for `'a`.
pub unsafe fn text<'a>(ptr: *const c_char) -> Result<Option<&'a str>> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: `ptr` is not NULL, so the caller vouches for the string.
    let text = unsafe { CStr::from_ptr(ptr) };
    text.to_str().map(Some).map_err(|_| Errno::Inval)
}

/// Writes a result to the memory at a pointer.
///
/// # Errors
/// [`Errno::Inval`] for NULL.
///
/// # Safety
/// `ptr` is NULL or may be written.
#[inline]
pub unsafe fn put<T>(ptr: *mut T, value: T) -> Result {
    if ptr.is_null() {
        return Err(Errno::Inval);
    }
    // SAFETY: `ptr` is not NULL, so the caller vouches for the memory.
    unsafe { ptr.write(value) };
    Ok(())
}

/// Copies the first `size` bytes of a structure; the rest of the copy is zero. Programs that were
/// built for an earlier version pass shorter structures.
///
/// # Errors
/// [`Errno::Inval`] for NULL.
///
/// # Safety
/// `ptr` is NULL or points to `size` bytes of a `T`; zeros are a valid `T`.
pub unsafe fn prefix<T: Copy>(ptr: *const T, size: usize) -> Result<T> {
    if ptr.is_null() {
        return Err(Errno::Inval);
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    let size = size.min(size_of::<T>());
    // SAFETY: the caller vouches for `size` bytes at `ptr`, and `copy` has room for as many.
    unsafe { ptr::copy_nonoverlapping(ptr.cast::<u8>(), copy.as_mut_ptr().cast(), size) };
    // SAFETY: zeros are a `T`, and the bytes copied over them were part of one.
    Ok(unsafe { copy.assume_init() })
}

/// Copies the member at a byte offset of a structure whose other members may be uninitialised.
///
/// # Safety
/// A `T` is at `offset` of the structure that `ptr` points to.
pub unsafe fn member<S, T: Copy>(ptr: *const S, offset: usize) -> T {
    let member = ptr.cast::<u8>().wrapping_add(offset).cast::<T>();
    // SAFETY: the caller vouches for the member.
    unsafe { member.read_unaligned() }
}

/// Copies at most `*len` bytes, and writes the full length to `len`.
///
/// # Errors
/// [`Errno::Inval`] if `len` is NULL, and if `ptr` is NULL while `*len` and `bytes` are not empty;
/// [`Errno::TooSmall`] for bytes that do not fit, after copying the first `*len` bytes.
///
/// # Safety
/// - `len` is NULL or points to a length that may be written.
/// - `ptr` is NULL or points to `*len` bytes that may be written.
pub unsafe fn copy_out(ptr: *mut u8, len: *mut usize, bytes: &[u8]) -> Result {
    // SAFETY: passed on from the caller.
    let capacity = *unsafe { required(len) }?;
    let count = bytes.len().min(capacity);
    // SAFETY: passed on from the caller.
    let dest = unsafe { output_array(ptr, count) }?;
    dest.write_copy_of_slice(&bytes[..count]);
    // SAFETY: the length was read just now; the caller vouches that it may be written.
    unsafe { put(len, bytes.len()) }?;
    if capacity < bytes.len() {
        return Err(Errno::TooSmall);
    }
    Ok(())
}
