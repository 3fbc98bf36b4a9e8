//! Access to this process's memory by addresses that other contexts have named.
//!
//! A peer may name any address. Before each access the kernel confirms that the address is mapped,
//! so that an invalid address becomes an error of the peer. One thread uses a context, so the
//! memory is not unmapped between the check and the copy.

#![expect(unsafe_code, reason = "addresses that other contexts have named")]

pub(crate) mod local;

use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use selvedge_kit::presence;

/// Returns whether all of these bytes may be read.
pub(crate) fn is_readable(address: u64, len: u64) -> bool {
    presence::is_readable(address as usize, len as usize)
}

/// Returns whether all of these bytes may be written.
pub(crate) fn is_writable(address: u64, len: u64) -> bool {
    presence::is_writable(address as usize, len as usize)
}

/// Copies `bytes` to an address named by a peer.
///
/// # Errors
/// `Err(())` if the memory is not writable. No byte is copied.
#[inline]
pub(crate) fn store(address: u64, bytes: &[u8]) -> Result<(), ()> {
    if !is_writable(address, bytes.len() as u64) {
        return Err(());
    }
    let destination = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: the kernel has just confirmed that the bytes are mapped and writable, and the only
    // thread of this context is in this function. The ranges may overlap if a caller puts memory
    // onto itself: `copy` allows that.
    unsafe { ptr::copy(bytes.as_ptr(), destination, bytes.len()) };
    Ok(())
}

/// Appends the `len` bytes at `address` to `dest`.
///
/// # Errors
/// `Err(())` if the memory is not readable. No byte is appended.
pub(crate) fn load(address: u64, len: usize, dest: &mut Vec<u8>) -> Result<(), ()> {
    if !is_readable(address, len as u64) {
        return Err(());
    }
    dest.reserve(len);
    let from = ptr::with_exposed_provenance::<u8>(address as usize);
    let end = dest.as_mut_ptr().wrapping_add(dest.len());
    // SAFETY: the source is readable, as above, and the destination was reserved.
    unsafe { ptr::copy(from, end, len) };
    // SAFETY: `len` bytes were just written behind the others.
    unsafe { dest.set_len(dest.len() + len) };
    Ok(())
}

/// Copies `len` bytes within this process.
///
/// # Errors
/// `Err(())` if the source is not readable or the destination not writable. No byte is copied.
pub(crate) fn copy_within(from: u64, to: u64, len: u64) -> Result<(), ()> {
    if !is_readable(from, len) || !is_writable(to, len) {
        return Err(());
    }
    let source = ptr::with_exposed_provenance::<u8>(from as usize);
    let destination = ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: both ranges were checked; they may overlap.
    unsafe { ptr::copy(source, destination, len as usize) };
    Ok(())
}

/// Increments the integer at `address`, after checking the address unless `is_mapped` is true.
///
/// # Errors
/// `Err(())` if the address is not aligned or not writable.
pub(crate) fn increment(address: u64, is_mapped: bool) -> Result<(), ()> {
    let count = ptr::with_exposed_provenance_mut::<i32>(address as usize);
    if !count.is_aligned() || !is_mapped && !is_writable(address, 4) {
        return Err(());
    }
    // SAFETY: the address is aligned. The memory is writable: it is special memory of this context,
    // which is mapped while it is in the table, or the kernel has just confirmed the address. The
    // application reads the integer through a volatile int or within calls of the library.
    let count = unsafe { AtomicI32::from_ptr(count) };
    count.fetch_add(1, Ordering::Release);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    static CONSTANT: [u8; 8192] = [1; 8192];

    #[test]
    fn unmapped_and_read_only_memory_is_detected() {
        let mut stack = [0_u8; 100];
        let heap = vec![0_u8; 1 << 20];
        let stack = stack.as_mut_ptr().expose_provenance() as u64;
        let heap = heap.as_ptr().expose_provenance() as u64;
        let text = CONSTANT.as_ptr().expose_provenance() as u64;
        let table = [
            (stack, 100, true, true),
            (heap, 1 << 20, true, true),
            (text, 8192, true, false),
            (0, 1, false, false),
            (0x1000, 8, false, false),
            (u64::MAX - 3, 8, false, false),
            (0x7fff_ffff_f000, 8192, false, false),
            (heap, 1 << 45, false, false),
            (1, 0, true, true),
        ];
        for (address, len, readable, writable) in table {
            assert_eq!(is_readable(address, len), readable, "{address:#x}");
            assert_eq!(is_writable(address, len), writable, "{address:#x}");
        }
    }

    #[test]
    fn an_unaligned_integer_is_not_incremented() {
        let mut ints = [0_i32; 2];
        let address = ints.as_mut_ptr().expose_provenance() as u64;
        assert_eq!(increment(address, false), Ok(()));
        assert_eq!(increment(address + 1, false), Err(()));
        assert_eq!(increment(8, false), Err(()));
        assert_eq!(ints, [1, 0]);
    }
}
