//! The memory of a multi-receive buffer, cut into parts, one for each message.

use std::fmt;
use std::sync::Arc;

use selvedge::IovMut;

use super::RxBuf;
use super::segment_list::{Buffer, Segment, Segments};

/// The part of a multi-receive buffer that no message has taken yet.
///
/// The rest and all [parts](Self::cut) name disjoint bytes. The part that is
/// [finished](RxBuf::finish) last reports that it is the last. The whole buffer then belongs to the
/// caller again.
pub struct MultiBuf {
    rest: IovMut,
    buffer: Arc<Buffer>,
}

/// A finished part of a multi-receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The address of the part's first byte.
    pub start: usize,
    /// Whether no other part of the buffer is in use.
    pub is_last: bool,
}

impl MultiBuf {
    /// Makes a multi-receive buffer of a buffer with one segment.
    ///
    /// # Errors
    /// The buffer, if it has several segments.
    pub fn new(buf: RxBuf) -> Result<Self, RxBuf> {
        match buf.0 {
            Segments::One(rest) => Ok(Self {
                rest,
                buffer: Arc::new(Buffer),
            }),
            _ => Err(buf),
        }
    }

    /// The number of bytes that are left.
    pub fn len(&self) -> usize {
        self.rest.len
    }

    /// Whether no byte is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts off the next `len` bytes, or as many as are left.
    pub fn cut(&mut self, len: usize) -> RxBuf {
        let part = self.rest.part(0, len);
        self.rest = self.rest.part(part.len, usize::MAX);
        RxBuf(Segments::Part(Box::new((part, Arc::clone(&self.buffer)))))
    }

    /// Makes one part of the rest, after which no part can be cut.
    pub fn into_rest(self) -> RxBuf {
        RxBuf(Segments::Part(Box::new((self.rest, self.buffer))))
    }
}

impl RxBuf {
    /// Ends the access to the memory, as a drop does. Returns the part if the memory is part of a
    /// multi-receive buffer.
    #[inline]
    pub fn finish(self) -> Option<Part> {
        match self.0 {
            Segments::One(_) | Segments::Many(_) => None,
            Segments::Part(part) => {
                let (segment, buffer) = *part;
                Some(Part {
                    start: segment.base.addr(),
                    is_last: Arc::into_inner(buffer).is_some(),
                })
            }
        }
    }
}

impl Default for RxBuf {
    /// Makes a buffer of length 0.
    fn default() -> Self {
        Self(Segments::One(IovMut::EMPTY))
    }
}

impl fmt::Debug for MultiBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiBuf({} bytes left)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(unsafe_code, reason = "memory that is never accessed")]
    fn buf(iov: &[IovMut]) -> RxBuf {
        // SAFETY: the tests access no byte of the memory.
        unsafe { RxBuf::new(iov) }
    }

    fn multi(len: usize) -> MultiBuf {
        let iov = IovMut::from_raw(std::ptr::without_provenance_mut(4096), len);
        MultiBuf::new(buf(&[iov])).unwrap()
    }

    fn part(start: usize, is_last: bool) -> Option<Part> {
        Some(Part { start, is_last })
    }

    #[test]
    fn parts_are_adjacent_and_end_with_the_rest() {
        let mut multi = multi(100);
        let lens = [10, 0, 30, 90, 5].map(|len| (multi.len(), multi.cut(len)));
        let lens = lens.map(|(left, part)| (left, part.len(), part.finish()));
        let expected = [
            (100, 10, part(4096, false)),
            (90, 0, part(4106, false)),
            (90, 30, part(4106, false)),
            (60, 60, part(4136, false)),
            (0, 0, part(4196, false)),
        ];
        assert_eq!(lens, expected);
        assert!(multi.is_empty());
    }

    #[test]
    fn the_part_that_is_finished_last_reports_that_it_is_the_last() {
        for last in 0..3 {
            let mut multi = multi(100);
            let mut parts = vec![multi.cut(10), multi.cut(10), multi.into_rest()];
            let kept = parts.remove(last);
            assert!(
                parts
                    .into_iter()
                    .all(|part| !part.finish().unwrap().is_last)
            );
            assert!(kept.finish().unwrap().is_last);
        }
    }

    #[test]
    fn a_dropped_part_is_finished() {
        let mut multi = multi(100);
        drop(multi.cut(10));
        let rest = multi.into_rest();
        assert_eq!((rest.len(), rest.finish()), (90, part(4106, true)));
    }

    #[test]
    fn a_buffer_of_several_segments_is_returned() {
        let iov = IovMut::from_raw(std::ptr::dangling_mut(), 8);
        let returned = MultiBuf::new(buf(&[iov, iov])).unwrap_err();
        assert_eq!((returned.len(), returned.finish()), (16, None));
    }
}
