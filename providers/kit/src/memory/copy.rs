//! The caller's promise about memory, as a move-only value.
//!
//! `recvmsg` and `sendmsg` are the only places where a provider turns the caller's promise into a
//! [`RxBuf`] or a [`TxBuf`]. From there on the bytes are accessed through safe methods, and
//! dropping the value ends the access: code that consumes it before pushing the completion cannot
//! access the bytes afterwards. Registered memory, which peers access at the same time, is
//! [`selvedge::shared::SharedBytes`].

#![expect(
    unsafe_code,
    reason = "turns addresses that a caller vouched for into slices"
)]

mod multi;
mod segment_list;
mod words;

pub use multi::{MultiBuf, Part};

use std::mem::MaybeUninit;
use std::{fmt, ptr, slice};

use selvedge::{Errno, Iov, IovMut, Result};

use segment_list::{Segment, Segments};

/// The memory of a posted receive: the destination of one message.
pub struct RxBuf(Segments<IovMut>);

/// The memory of a posted send: the source of one message.
pub struct TxBuf(Segments<Iov>);

impl RxBuf {
    /// Takes over the memory that `iov` names.
    ///
    /// # Safety
    /// From now until the value is dropped, every byte named by `iov` is valid for writes and
    /// accessed by no other code: the promise of [`selvedge::Msg::recvmsg`].
    #[inline]
    pub unsafe fn new(iov: &[IovMut]) -> Self {
        Self(Segments::new(iov))
    }

    /// As [`Self::new`], for a caller's list of at most `limit` segments.
    ///
    /// # Errors
    /// [`Errno::Inval`] for more segments.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline]
    pub unsafe fn with_limit(iov: &[IovMut], limit: usize) -> Result<Self> {
        if iov.len() > limit {
            Err(Errno::Inval)
        } else {
            // SAFETY: passed on from the caller.
            Ok(unsafe { Self::new(iov) })
        }
    }

    /// Takes over the memory of a receive with one segment. The value then owns no allocation, and
    /// the compiler can tell that.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    pub unsafe fn one(segment: IovMut) -> Self {
        Self(Segments::One(segment))
    }

    /// The length in bytes. A sum that overflows, which no real memory has, counts as `usize::MAX`.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the memory is one segment of at least `len` bytes.
    #[inline(always)]
    pub fn is_one_for(&self, len: usize) -> bool {
        matches!(&self.0, Segments::One(segment) if segment.len >= len)
    }

    /// Copies `bytes` to `offset`, as far as they fit; returns the number of copied bytes.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> usize {
        if let Segments::One(segment) = &self.0
            && offset == 0
        {
            let len = bytes.len().min(segment.len);
            // SAFETY: `new`'s caller promised that the segment is valid for writes and accessed by
            // no other code, so it does not overlap `bytes`; `len` is within both.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), segment.base.cast(), len) };
            return len;
        }
        let mut copied = 0;
        for segment in self.segments(offset, bytes.len()) {
            let chunk = &bytes[copied..copied + segment.len()];
            segment.write_copy_of_slice(chunk);
            copied += chunk.len();
        }
        copied
    }

    /// The memory from `offset` on, `len` bytes or as many as there are, segment by segment and
    /// without empty ones: for copies from memory that is not a slice.
    #[inline]
    pub fn segments(
        &mut self,
        offset: usize,
        len: usize,
    ) -> impl Iterator<Item = &mut [MaybeUninit<u8>]> {
        self.0.clip(offset, len).map(|IovMut { base, len }| {
            // SAFETY: `new`'s caller promised that these bytes are valid and accessed by no other
            // code, any bytes are valid `MaybeUninit`s, `clip` stays inside one segment, and `&mut
            // self` is borrowed while the slice lives.
            unsafe { slice::from_raw_parts_mut(base.cast(), len) }
        })
    }
}

impl TxBuf {
    /// Takes over the memory that `iov` names.
    ///
    /// # Safety
    /// From now until the value is dropped, every byte named by `iov` is valid for reads and not
    /// written: the promise of [`selvedge::Msg::sendmsg`].
    #[inline]
    pub unsafe fn new(iov: &[Iov]) -> Self {
        Self(Segments::new(iov))
    }

    /// As [`Self::new`], for a caller's list of at most `limit` segments.
    ///
    /// # Errors
    /// [`Errno::Inval`] for more segments; [`Errno::MsgSize`] for more than `isize::MAX` bytes.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline]
    pub unsafe fn with_limit(iov: &[Iov], limit: usize) -> Result<Self> {
        if iov.len() > limit {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let buf = unsafe { Self::new(iov) };
        if buf.len() > isize::MAX as usize {
            Err(Errno::MsgSize)
        } else {
            Ok(buf)
        }
    }

    /// Takes over the memory of a send with one segment, as [`RxBuf::one`] does.
    ///
    /// # Safety
    /// As [`Self::new`].
    #[inline(always)]
    pub unsafe fn one(segment: Iov) -> Self {
        Self(Segments::One(segment))
    }

    /// Makes an empty message.
    #[inline]
    pub fn empty() -> Self {
        Self(Segments::One(Iov::EMPTY))
    }

    /// The length in bytes. A sum that overflows, which no real memory has, counts as `usize::MAX`.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `offset` on to `out`, as many as there are; returns their number.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> usize {
        if let Segments::One(segment) = &self.0
            && offset == 0
        {
            let len = out.len().min(segment.len);
            // SAFETY: `new`'s caller promised that the segment is valid for reads and not written,
            // so it does not overlap `out`; `len` is within both.
            unsafe { ptr::copy_nonoverlapping(segment.base.cast(), out.as_mut_ptr(), len) };
            return len;
        }
        let mut copied = 0;
        for segment in self.segments(offset, out.len()) {
            out[copied..copied + segment.len()].copy_from_slice(segment);
            copied += segment.len();
        }
        copied
    }

    /// The bytes from `offset` on, `len` or as many as there are, segment by segment and without
    /// empty ones: for copies to memory that is not a slice.
    #[inline]
    pub fn segments(&self, offset: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        self.0.clip(offset, len).map(|Iov { base, len }| {
            // SAFETY: `new`'s caller promised that these bytes are valid and not written while the
            // value lives, and `clip` stays inside one segment.
            unsafe { slice::from_raw_parts(base.cast(), len) }
        })
    }
}

// SAFETY: the promise of `new` is about the memory, not about the thread that uses the memory.
unsafe impl Send for RxBuf {}
// SAFETY: as above.
unsafe impl Send for TxBuf {}
// SAFETY: a shared `RxBuf` gives access to its length and nothing else.
unsafe impl Sync for RxBuf {}
// SAFETY: a shared `TxBuf` only reads, and no code writes.
unsafe impl Sync for TxBuf {}

impl fmt::Debug for RxBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RxBuf({} bytes)", self.len())
    }
}

impl fmt::Debug for TxBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxBuf({} bytes)", self.len())
    }
}

const _: () = assert!(size_of::<RxBuf>() == 24);
const _: () = assert!(size_of::<TxBuf>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    fn rx(parts: &mut [Vec<u8>]) -> RxBuf {
        let iov: Vec<_> = parts.iter_mut().map(|p| IovMut::new(p)).collect();
        // SAFETY: the tests do not access `parts` while the value lives.
        unsafe { RxBuf::new(&iov) }
    }

    fn tx(parts: &[&[u8]]) -> TxBuf {
        let iov: Vec<_> = parts.iter().map(|p| Iov::new(p)).collect();
        // SAFETY: the parts are shared slices that outlive the value.
        unsafe { TxBuf::new(&iov) }
    }

    #[test]
    fn one_segment_takes_the_bytes_that_fit() {
        let mut parts = [vec![0; 4]];
        let mut buf = rx(&mut parts);
        assert_eq!(buf.len(), 4);
        assert_eq!(buf.write(1, b"abcdef"), 3);
        assert_eq!(buf.write(4, b"x"), 0);
        assert_eq!(buf.write(usize::MAX, b"x"), 0);
        drop(buf);
        assert_eq!(parts[0], b"\0abc");
    }

    #[test]
    fn segments_are_filled_one_after_the_other() {
        let mut parts = [vec![0; 2], vec![], vec![0; 3]];
        let mut buf = rx(&mut parts);
        assert_eq!(buf.len(), 5);
        assert_eq!(buf.write(0, b"abc"), 3);
        assert_eq!(buf.write(3, b"def"), 2);
        drop(buf);
        assert_eq!(parts, [b"ab".to_vec(), vec![], b"cde".to_vec()]);
    }

    #[test]
    fn a_message_is_gathered_from_any_offset() {
        let buf = tx(&[b"ab", b"", b"cdef"]);
        let mut out = [0; 3];
        assert_eq!(buf.read(1, &mut out), 3);
        assert_eq!(&out, b"bcd");
        assert_eq!(buf.read(4, &mut out), 2);
        assert_eq!(&out, b"efd");
        assert_eq!(buf.read(6, &mut out), 0);
    }

    #[test]
    fn empty_segments_are_skipped() {
        let buf = tx(&[b"", b"ab", b"", b"c"]);
        let segments: Vec<_> = buf.segments(0, usize::MAX).collect();
        assert_eq!(segments, [&b"ab"[..], b"c"]);
    }

    #[test]
    fn no_segments_are_an_empty_message() {
        let mut buf = rx(&mut []);
        assert!(buf.is_empty());
        assert_eq!(buf.write(0, b"a"), 0);
        assert!(tx(&[]).is_empty());
    }

    #[test]
    fn a_null_segment_of_length_zero_is_not_accessed() {
        // SAFETY: there are no bytes.
        let buf = unsafe { TxBuf::new(&[Iov::from_raw(ptr::null(), 0)]) };
        assert_eq!(buf.segments(0, 10).count(), 0);
    }

    #[test]
    fn lengths_beyond_the_address_space_do_not_wrap() {
        let segment = Iov::from_raw(ptr::dangling(), usize::MAX / 2 + 1);
        // SAFETY: not true, but the bytes are not accessed: only the length is read.
        let buf = unsafe { TxBuf::new(&[segment, segment, segment]) };
        assert_eq!(buf.len(), usize::MAX);
    }
}
