//! The segments of a message: one, which is stored inline, or several, or a part of a multi-receive
//! buffer.

use std::ptr;
use std::slice;
use std::sync::Arc;

use selvedge::{Iov, IovMut};

/// A list of segments. Nearly every message has one segment, which is stored inline.
pub(super) enum Segments<P> {
    One(P),
    Many(Box<Many<P>>),
    /// A part of a multi-receive buffer, which stays in use as long as it has parts.
    Part(Box<(P, Arc<Buffer>)>),
}

pub(super) struct Many<P> {
    total: usize,
    segments: Box<[P]>,
}

/// The token of a multi-receive buffer, which its rest and its parts share. The token exists while
/// one of them does.
pub(super) struct Buffer;

/// The common interface of [`Iov`] and [`IovMut`].
pub(super) trait Segment: Copy {
    const EMPTY: Self;

    fn len(self) -> usize;

    /// The part from `skip` on, `len` bytes or as many as there are.
    fn part(self, skip: usize, len: usize) -> Self;
}

impl<P: Segment> Many<P> {
    #[cold]
    fn new(segments: &[P]) -> Box<Self> {
        Box::new(Self {
            total: segments
                .iter()
                .fold(0, |sum, p| p.len().saturating_add(sum)),
            segments: segments.into(),
        })
    }
}

impl<P: Segment> Segments<P> {
    #[inline]
    pub(super) fn new(segments: &[P]) -> Self {
        match *segments {
            [one] => Self::One(one),
            [] => Self::One(P::EMPTY),
            _ => Self::Many(Many::new(segments)),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(one) => one.len(),
            Self::Many(many) => many.total,
            Self::Part(part) => part.0.len(),
        }
    }

    fn as_slice(&self) -> &[P] {
        match self {
            Self::One(one) => slice::from_ref(one),
            Self::Many(many) => &many.segments,
            Self::Part(part) => slice::from_ref(&part.0),
        }
    }

    /// The parts of the segments that hold the bytes from `offset` on, `len` at most.
    #[inline]
    pub(super) fn clip(&self, mut offset: usize, mut len: usize) -> impl Iterator<Item = P> {
        self.as_slice().iter().filter_map(move |segment| {
            let part = segment.part(offset, len);
            offset = offset.saturating_sub(segment.len());
            len -= part.len();
            (part.len() > 0).then_some(part)
        })
    }
}

macro_rules! segment {
    ($iov:ident, $null:expr) => {
        impl Segment for $iov {
            const EMPTY: Self = Self {
                base: $null,
                len: 0,
            };

            #[inline]
            fn len(self) -> usize {
                self.len
            }

            #[inline]
            fn part(self, skip: usize, len: usize) -> Self {
                let skip = skip.min(self.len);
                Self {
                    base: self.base.wrapping_byte_add(skip),
                    len: len.min(self.len - skip),
                }
            }
        }
    };
}

segment!(Iov, ptr::null());
segment!(IovMut, ptr::null_mut());
