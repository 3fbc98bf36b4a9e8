//! `LastError`: the last error entry that a queue has returned. The data and the text of the entry
//! stay valid until the next error entry.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use selvedge::Result;

use crate::pointer::{member, output_array};

/// The last error of a queue.
#[derive(Debug, Default)]
pub(crate) struct LastError(Mutex<StoredError>);

#[derive(Debug, Default)]
struct StoredError {
    number: c_int,
    detail: CString,
    data: Vec<u8>,
}

/// The members `err_data` and `err_data_size` of an entry.
pub(crate) type Data = (*mut c_void, usize);

impl LastError {
    /// Stores an error, and returns the members `err_data` and `err_data_size` of its entry. The
    /// data is in the memory that the program has passed, or in `self` until the next error if the
    /// program has passed none.
    ///
    /// # Errors
    /// As [`output_array`].
    ///
    /// # Safety
    /// `buffer` is NULL or points to `len` bytes.
    pub(crate) unsafe fn store(
        &self,
        number: c_int,
        detail: &str,
        data: Vec<u8>,
        (buffer, len): Data,
    ) -> Result<Data> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let detail = CString::new(detail.replace('\0', " ")).unwrap_or_default();
        *last = StoredError {
            number,
            detail,
            data,
        };
        if len > 0 && !buffer.is_null() {
            let copied_len = last.data.len().min(len);
            // SAFETY: passed on from the caller.
            let room = unsafe { output_array(buffer.cast::<u8>(), copied_len) }?;
            room.write_copy_of_slice(&last.data[..copied_len]);
            return Ok((buffer, copied_len));
        }
        Ok(match last.data.as_mut_slice() {
            [] => (ptr::null_mut(), 0),
            data => (data.as_mut_ptr().cast(), data.len()),
        })
    }

    /// The provider's text of the last error if that error has this number, otherwise the number's
    /// text. The text is copied to `buf` if `buf` has room.
    ///
    /// # Safety
    /// `buf` is NULL or points to `len` bytes.
    pub(crate) unsafe fn text(&self, number: c_int, buf: *mut c_char, len: usize) -> *const c_char {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = if last.number == number && !last.detail.is_empty() {
            last.detail.as_ptr()
        } else {
            crate::export::strerror(number)
        };
        if !buf.is_null() && len > 0 {
            // SAFETY: both kinds of text end with a zero.
            let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
            let copied_len = bytes.len().min(len - 1);
            // SAFETY: passed on from the caller.
            if let Ok(room) = unsafe { output_array(buf.cast::<u8>(), copied_len + 1) } {
                room[..copied_len].write_copy_of_slice(&bytes[..copied_len]);
                room[copied_len].write(0);
                return buf;
            }
        }
        text
    }
}

/// The program's memory for the data of an error. `size_offset` is the offset of `err_data_size`,
/// which follows `err_data`; an entry that ends before this offset has no such memory.
///
/// # Safety
/// `entry` points to `entry_len` bytes of an entry.
pub(crate) unsafe fn program_buffer<E>(
    entry: *const E,
    size_offset: usize,
    entry_len: usize,
) -> Data {
    if entry_len <= size_offset {
        return (ptr::null_mut(), 0);
    }
    // SAFETY: passed on from the caller: programs set these two members.
    let buffer = unsafe { member(entry, size_offset - size_of::<*mut c_void>()) };
    // SAFETY: as above.
    (buffer, unsafe { member(entry, size_offset) })
}

/// Writes the first `entry_len` bytes of an entry: the length of the program's version.
///
/// # Safety
/// `dest` has room for `entry_len` bytes.
pub(crate) unsafe fn write<E>(entry: &E, dest: *mut E, entry_len: usize) {
    // SAFETY: passed on from the caller.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(entry).cast::<u8>(), dest.cast(), entry_len) };
}
