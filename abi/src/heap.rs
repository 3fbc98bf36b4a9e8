//! Memory of the C library, for structures that programs free with `fi_freeinfo`, and whose members
//! they free with `free` while they edit them.

#![expect(unsafe_code, reason = "malloc and free")]

use std::ffi::{c_char, c_void};
use std::ptr;

use selvedge::{Errno, Result};

/// Allocates a structure of zeros.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn zeroed<T>() -> Result<*mut T> {
    zeros(size_of::<T>()).map(<*mut c_void>::cast)
}

fn zeros(len: usize) -> Result<*mut c_void> {
    // SAFETY: calloc accepts any arguments.
    let at = unsafe { libc::calloc(1, len) };
    if at.is_null() {
        return Err(Errno::NoMem);
    }
    Ok(at)
}

/// Allocates a structure with this value.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn allocated<T>(value: T) -> Result<*mut T> {
    let at = zeroed::<T>()?;
    // SAFETY: memory for a `T` was allocated just now; malloc's alignment suffices for all
    // structures of C.
    unsafe { at.write(value) };
    Ok(at)
}

/// Allocates a copy of bytes; NULL for none.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn bytes(bytes: &[u8]) -> Result<*mut u8> {
    if bytes.is_empty() {
        return Ok(ptr::null_mut());
    }
    array(bytes)
}

/// Allocates a copy of an array.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn array<T: Copy>(from: &[T]) -> Result<*mut T> {
    let at = zeros(size_of_val(from).max(1))?.cast::<T>();
    // SAFETY: memory of this length was allocated just now.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) };
    Ok(at)
}

/// Allocates a copy of a text up to its first zero; NULL for an empty one.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn string(text: &str) -> Result<*mut c_char> {
    if text.is_empty() {
        return Ok(ptr::null_mut());
    }
    let mut with_zero = text
        .split('\0')
        .next()
        .unwrap_or_default()
        .as_bytes()
        .to_vec();
    with_zero.push(0);
    bytes(&with_zero).map(<*mut u8>::cast)
}

/// Allocates a copy of a C string; NULL for NULL.
///
/// # Errors
/// [`Errno::NoMem`].
///
/// # Safety
/// `at` is NULL or names a string with a zero behind it.
pub unsafe fn duplicate_string(at: *const c_char) -> Result<*mut c_char> {
    if at.is_null() {
        return Ok(ptr::null_mut());
    }
    // SAFETY: it is not NULL, so the caller vouches for the string.
    let copy = unsafe { libc::strdup(at) };
    if copy.is_null() {
        return Err(Errno::NoMem);
    }
    Ok(copy)
}

/// Frees memory; NULL is ignored.
///
/// # Safety
/// The memory came from this module or from the C library's `malloc`, and is not used any more.
pub unsafe fn free<T>(at: *mut T) {
    // SAFETY: passed on from the caller.
    unsafe { libc::free(at.cast()) };
}
