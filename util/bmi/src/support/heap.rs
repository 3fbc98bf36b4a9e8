//! Memory of the C library, for applications that free it with free(3).

#![expect(unsafe_code, reason = "malloc(3) and free(3)")]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;

/// The bytes of an unexpected message, allocated by malloc(3).
pub struct HeapBuf {
    base: NonNull<u8>,
    len: usize,
}

impl HeapBuf {
    /// Copies `bytes`; `None` when memory is exhausted.
    pub fn copy_of(bytes: &[u8]) -> Option<Self> {
        // At least one byte: malloc(0) may return null.
        // SAFETY: malloc(3) may be called with any size.
        let base = unsafe { libc::malloc(bytes.len().max(1)) };
        let base = NonNull::new(base.cast::<u8>())?;
        // SAFETY: the new block has room for all of `bytes`, which it does not overlap.
        unsafe { base.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Some(Self {
            base,
            len: bytes.len(),
        })
    }

    /// Releases the block; the caller frees it with free(3).
    pub fn into_raw(self) -> *mut u8 {
        let base = self.base.as_ptr();
        std::mem::forget(self);
        base
    }
}

impl Deref for HeapBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this value owns the block, which has `len` bytes, all written by `copy_of`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl Drop for HeapBuf {
    fn drop(&mut self) {
        // SAFETY: the block came from malloc(3), and this value is its only owner.
        unsafe { libc::free(self.base.as_ptr().cast()) };
    }
}

impl fmt::Debug for HeapBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeapBuf({} bytes)", self.len)
    }
}

// SAFETY: one value owns the block, which is bound to no thread.
unsafe impl Send for HeapBuf {}
// SAFETY: shared references only read the block.
unsafe impl Sync for HeapBuf {}

/// Allocates zeroed, page-aligned memory, which the caller frees with free(3). `None` when memory
/// is exhausted.
pub fn pages(len: usize) -> Option<NonNull<u8>> {
    const PAGE: usize = 4096;
    let mut base = std::ptr::null_mut();
    // SAFETY: the result is written to `base`, and the alignment is a power of two.
    let error = unsafe { libc::posix_memalign(&raw mut base, PAGE, len.max(1)) };
    if error != 0 {
        return None;
    }
    let base = NonNull::new(base.cast::<u8>())?;
    // SAFETY: the new block has `len` bytes.
    unsafe { base.write_bytes(0, len) };
    Some(base)
}

/// Frees a block of the C library.
///
/// # Safety
/// `base` is null or came from malloc(3) or posix_memalign(3), was not freed, and is not used any
/// more.
pub unsafe fn free(base: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { libc::free(base.cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_whole_and_may_be_freed_by_the_c_library() {
        for bytes in [&b""[..], b"x", &[7; 16384]] {
            let copy = HeapBuf::copy_of(bytes).unwrap();
            assert_eq!(&*copy, bytes);
            let raw = copy.into_raw();
            // SAFETY: `into_raw` gave the block to this test.
            unsafe { free(raw) };
        }
    }

    #[test]
    fn pages_are_aligned_and_zero() {
        let base = pages(5000).unwrap();
        assert_eq!(base.addr().get() % 4096, 0);
        // SAFETY: 5000 bytes were allocated and zeroed.
        let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), 5000) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        // SAFETY: this test owns the block, and `bytes` is not used below.
        unsafe { free(base.as_ptr()) };
    }
}
