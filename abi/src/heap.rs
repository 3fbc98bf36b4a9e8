//! Memory of the C library, for structures that programs free with `fi_freeinfo`. A program that
//! edits a structure frees single members with `free`.

#![expect(unsafe_code, reason = "malloc and free")]

use std::ffi::{c_char, c_void};
use std::ptr;

use selvedge::{Errno, Result};

/// Allocates a zeroed structure.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn allocate_zeroed<T>() -> Result<*mut T> {
    allocate_zeros(size_of::<T>()).map(<*mut c_void>::cast)
}

fn allocate_zeros(len: usize) -> Result<*mut c_void> {
    // SAFETY: calloc accepts any arguments.
    let ptr = unsafe { libc::calloc(1, len) };
    if ptr.is_null() {
        return Err(Errno::NoMem);
    }
    Ok(ptr)
}

/// Allocates a structure with this value.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn allocate<T>(value: T) -> Result<*mut T> {
    let ptr = allocate_zeroed::<T>()?;
    // SAFETY: memory for a `T` was allocated just now; malloc's alignment suffices for all
    // structures of C.
    unsafe { ptr.write(value) };
    Ok(ptr)
}

/// Allocates a copy of bytes; NULL for none.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn copy_bytes(bytes: &[u8]) -> Result<*mut u8> {
    if bytes.is_empty() {
        return Ok(ptr::null_mut());
    }
    copy_array(bytes)
}

/// Allocates a copy of an array.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn copy_array<T: Copy>(elements: &[T]) -> Result<*mut T> {
    let ptr = allocate_zeros(size_of_val(elements).max(1))?.cast::<T>();
    // SAFETY: memory of this length was allocated just now.
    unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), ptr, elements.len()) };
    Ok(ptr)
}

/// Allocates a copy of a text up to its first zero; NULL for an empty one.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn copy_str(text: &str) -> Result<*mut c_char> {
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
    copy_bytes(&with_zero).map(<*mut u8>::cast)
}

/// Allocates a copy of a C string; NULL for NULL.
///
/// # Errors
/// [`Errno::NoMem`].
///
/// # Safety
/// `ptr` is NULL or points to a string that ends with a zero.
pub unsafe fn duplicate_string(ptr: *const c_char) -> Result<*mut c_char> {
    if ptr.is_null() {
        return Ok(ptr::null_mut());
    }
    // SAFETY: `ptr` is not NULL, so the caller vouches for the string.
    let copy = unsafe { libc::strdup(ptr) };
    if copy.is_null() {
        return Err(Errno::NoMem);
    }
    Ok(copy)
}

/// Frees memory; NULL is ignored.
///
/// # Safety
/// - The memory came from this module or from the C library's `malloc`.
/// - The memory is not used any more.
pub unsafe fn free<T>(ptr: *mut T) {
    // SAFETY: passed on from the caller.
    unsafe { libc::free(ptr.cast()) };
}
