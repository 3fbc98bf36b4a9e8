//! The memory of a multi-receive buffer: cut into parts, one for each message.

use std::fmt;
use std::sync::Arc;

use selvedge::IovMut;

use super::{Piece, Pieces, RxBuf};

/// The part of a multi-receive buffer that no message has taken yet.
///
/// What it was made of, this rest and all [parts](Self::cut) name disjoint bytes; whichever of them
/// is [ended](RxBuf::end) last says so, and the whole buffer is the caller's again.
pub struct MultiBuf {
    rest: IovMut,
    whole: Arc<Whole>,
}

/// What the parts of one buffer have in common; it is alive while one of them is.
pub(super) struct Whole;

/// What became of a part of a multi-receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub start: usize,
    /// Whether it was the last that was in use of its buffer.
    pub is_last: bool,
}

impl MultiBuf {
    /// Makes a multi-receive buffer of a buffer in one piece; any other comes back.
    ///
    /// # Errors
    /// The buffer, if it has several pieces.
    pub fn new(buf: RxBuf) -> Result<Self, RxBuf> {
        match buf.0 {
            Pieces::One(rest) => Ok(Self {
                rest,
                whole: Arc::new(Whole),
            }),
            _ => Err(buf),
        }
    }

    /// Bytes that are left.
    pub fn len(&self) -> usize {
        self.rest.len
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the next `len` bytes off, or as many as are left.
    pub fn cut(&mut self, len: usize) -> RxBuf {
        let part = self.rest.part(0, len);
        self.rest = self.rest.part(part.len, usize::MAX);
        RxBuf(Pieces::Part(Box::new((part, Arc::clone(&self.whole)))))
    }

    /// The rest as one part: no more are cut.
    pub fn into_rest(self) -> RxBuf {
        RxBuf(Pieces::Part(Box::new((self.rest, self.whole))))
    }
}

impl RxBuf {
    /// Ends the access to the memory, like dropping it, and says what it was if it was a part of a
    /// multi-receive buffer.
    #[inline]
    pub fn end(self) -> Option<Part> {
        match self.0 {
            Pieces::One(_) | Pieces::Many(_) => None,
            Pieces::Part(part) => {
                let (piece, whole) = *part;
                Some(Part {
                    start: piece.base.addr(),
                    is_last: Arc::into_inner(whole).is_some(),
                })
            }
        }
    }
}

impl Default for RxBuf {
    /// No room at all.
    fn default() -> Self {
        Self(Pieces::One(IovMut::EMPTY))
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

    #[expect(unsafe_code, reason = "memory that is never reached")]
    fn buf(iov: &[IovMut]) -> RxBuf {
        // SAFETY: the tests reach no byte of it.
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
    fn parts_lie_one_behind_the_other_and_end_with_the_rest() {
        let mut multi = multi(100);
        let lens = [10, 0, 30, 90, 5].map(|len| (multi.len(), multi.cut(len)));
        let lens = lens.map(|(left, part)| (left, part.len(), part.end()));
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
    fn whichever_part_ends_last_says_so() {
        for last in 0..3 {
            let mut multi = multi(100);
            let mut parts = vec![multi.cut(10), multi.cut(10), multi.into_rest()];
            let kept = parts.remove(last);
            assert!(parts.into_iter().all(|part| !part.end().unwrap().is_last));
            assert!(kept.end().unwrap().is_last);
        }
    }

    #[test]
    fn a_part_that_is_dropped_is_ended() {
        let mut multi = multi(100);
        drop(multi.cut(10));
        let rest = multi.into_rest();
        assert_eq!((rest.len(), rest.end()), (90, part(4106, true)));
    }

    #[test]
    fn a_buffer_in_pieces_comes_back() {
        let iov = IovMut::from_raw(std::ptr::dangling_mut(), 8);
        let back = MultiBuf::new(buf(&[iov, iov])).unwrap_err();
        assert_eq!((back.len(), back.end()), (16, None));
    }
}
