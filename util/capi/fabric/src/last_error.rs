//! `LastError`: the last error entry that a queue has returned. Its data and its text stay valid
//! until the next one.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use selvedge::Result;

use crate::pointer::{member, output};

/// The last error of a queue.
#[derive(Debug, Default)]
pub(crate) struct LastError(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    number: c_int,
    detail: CString,
    data: Vec<u8>,
}

/// The members `err_data` and `err_data_size` of an entry.
pub(crate) type Data = (*mut c_void, usize);

impl LastError {
    /// Stores an error, and returns the members `err_data` and `err_data_size` of its entry. The
    /// data is in the program's memory, if it has passed some, or else in `self` until the next
    /// error.
    ///
    /// # Errors
    /// As [`output`].
    ///
    /// # Safety
    /// The pointer of the last argument is NULL or points to as many bytes as its length states.
    pub(crate) unsafe fn store(
        &self,
        number: c_int,
        detail: &str,
        data: Vec<u8>,
        (at, len): Data,
    ) -> Result<Data> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let detail = CString::new(detail.replace('\0', " ")).unwrap_or_default();
        *last = Last {
            number,
            detail,
            data,
        };
        if len > 0 && !at.is_null() {
            let fits = last.data.len().min(len);
            // SAFETY: passed on from the caller.
            let room = unsafe { output(at.cast::<u8>(), fits) }?;
            room.write_copy_of_slice(&last.data[..fits]);
            return Ok((at, fits));
        }
        Ok(match last.data.as_mut_slice() {
            [] => (ptr::null_mut(), 0),
            data => (data.as_mut_ptr().cast(), data.len()),
        })
    }

    /// The provider's text of the last error, if it has this number, or else the number's text. It
    /// is copied to `buf` if that has room.
    ///
    /// # Safety
    /// `buf` is NULL or points to `len` bytes.
    pub(crate) unsafe fn text(&self, number: c_int, buf: *mut c_char, len: usize) -> *const c_char {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match last.number == number && !last.detail.is_empty() {
            true => last.detail.as_ptr(),
            false => crate::export::strerror(number),
        };
        if !buf.is_null() && len > 0 {
            // SAFETY: both kinds of text end with a zero.
            let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
            let fits = bytes.len().min(len - 1);
            // SAFETY: passed on from the caller.
            if let Ok(room) = unsafe { output(buf.cast::<u8>(), fits + 1) } {
                room[..fits].write_copy_of_slice(&bytes[..fits]);
                room[fits].write(0);
                return buf;
            }
        }
        text
    }
}

/// The program's memory for the data of an error, if its version of the entry is longer than
/// `size_at`. That is the offset of `err_data_size`; `err_data` lies before it.
///
/// # Safety
/// `entry` points to `entry_len` bytes of an entry.
pub(crate) unsafe fn data_room<E>(entry: *const E, size_at: usize, entry_len: usize) -> Data {
    if entry_len <= size_at {
        return (ptr::null_mut(), 0);
    }
    // SAFETY: passed on from the caller: programs set these two members.
    let at = unsafe { member(entry, size_at - size_of::<*mut c_void>()) };
    // SAFETY: as above.
    (at, unsafe { member(entry, size_at) })
}

/// Writes the first `entry_len` bytes of an entry: the length of the program's version.
///
/// # Safety
/// `to` has room for `entry_len` bytes.
pub(crate) unsafe fn write<E>(entry: &E, to: *mut E, entry_len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(entry).cast::<u8>(), to.cast(), entry_len) };
}
