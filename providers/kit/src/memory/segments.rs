//! The remote memory segments (`rma_iov`) that one operation names.

use selvedge::rma::RmaIov;
use selvedge::{Errno, Result};

/// The largest number of segments of one operation (`rma_iov_limit`).
pub const RMA_IOV_LIMIT: usize = 4;

/// Up to [`RMA_IOV_LIMIT`] segments of registered memory, whose lengths add up to no more than
/// `isize::MAX` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmaSegments {
    list: [RmaIov; RMA_IOV_LIMIT],
    count: usize,
    len: usize,
}

const EMPTY: RmaIov = RmaIov {
    addr: 0,
    len: 0,
    key: 0,
};

impl RmaSegments {
    /// Copies a list of segments.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an empty list or for more than [`RMA_IOV_LIMIT`] segments,
    /// [`Errno::MsgSize`] for more than `isize::MAX` bytes in all.
    #[inline]
    pub fn new(iov: &[RmaIov]) -> Result<Self> {
        if let &[one] = iov
            && one.len <= isize::MAX as usize
        {
            return Ok(Self::one(one));
        }
        Self::from_list(iov)
    }

    /// Makes a list of one segment.
    #[inline]
    pub fn one(segment: RmaIov) -> Self {
        Self {
            list: [segment, EMPTY, EMPTY, EMPTY],
            count: 1,
            len: segment.len,
        }
    }

    /// Slow path of [`Self::new`]: any number of segments.
    fn from_list(iov: &[RmaIov]) -> Result<Self> {
        if !(1..=RMA_IOV_LIMIT).contains(&iov.len()) {
            return Err(Errno::Inval);
        }
        let len = iov
            .iter()
            .try_fold(0_usize, |sum, p| sum.checked_add(p.len));
        let len = len.filter(|&len| len <= isize::MAX as usize);
        let mut segments = Self {
            list: [EMPTY; RMA_IOV_LIMIT],
            count: iov.len(),
            len: len.ok_or(Errno::MsgSize)?,
        };
        segments.list[..iov.len()].copy_from_slice(iov);
        Ok(segments)
    }

    /// The sum of the lengths, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the sum of the lengths is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segments.
    #[inline]
    pub fn all(&self) -> &[RmaIov] {
        &self.list[..self.count]
    }

    /// The segment, if there is exactly one.
    #[inline]
    pub fn only(&self) -> Option<&RmaIov> {
        (self.count == 1).then(|| &self.list[0])
    }

    /// The parts of the segments that hold the bytes from `offset` on, `len` at most.
    pub fn clip(&self, mut offset: usize, mut len: usize) -> impl Iterator<Item = RmaIov> {
        self.all().iter().filter_map(move |segment| {
            let skip = offset.min(segment.len);
            let part = RmaIov {
                addr: segment.addr.wrapping_add(skip as u64),
                len: len.min(segment.len - skip),
                key: segment.key,
            };
            offset -= skip;
            len -= part.len;
            (part.len > 0).then_some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(addr: u64, len: usize) -> RmaIov {
        RmaIov { addr, len, key: 1 }
    }

    #[test]
    fn a_range_of_the_message_is_clipped_to_parts_of_segments() {
        let segments =
            RmaSegments::new(&[segment(100, 4), segment(200, 0), segment(300, 6)]).unwrap();
        let clip = |offset, len| segments.clip(offset, len).collect::<Vec<_>>();
        assert_eq!(clip(0, 10), [segment(100, 4), segment(300, 6)]);
        assert_eq!(clip(3, 2), [segment(103, 1), segment(300, 1)]);
        assert_eq!(clip(4, 100), [segment(300, 6)]);
        assert_eq!(clip(10, 1), []);
    }

    #[test]
    fn empty_long_and_overflowing_lists_are_refused() {
        assert_eq!(RmaSegments::new(&[]), Err(Errno::Inval));
        assert_eq!(RmaSegments::new(&[segment(0, 1); 5]), Err(Errno::Inval));
        let half = segment(0, usize::MAX / 2 + 1);
        assert_eq!(RmaSegments::new(&[half]), Err(Errno::MsgSize));
        assert_eq!(RmaSegments::new(&[half, half]), Err(Errno::MsgSize));
    }
}
