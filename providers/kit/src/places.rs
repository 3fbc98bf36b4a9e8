//! Places: the stretches of a peer's registered memory that one operation names.

use selvedge::rma::RmaIov;
use selvedge::{Errno, Result};

/// Pieces of a remote list, at most.
pub const RMA_IOV_LIMIT: usize = 4;

/// Up to [`RMA_IOV_LIMIT`] stretches of registered memory, which hold no more bytes in all than can
/// be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    list: [RmaIov; RMA_IOV_LIMIT],
    count: usize,
    len: usize,
}

const NOWHERE: RmaIov = RmaIov {
    addr: 0,
    len: 0,
    key: 0,
};

impl Places {
    /// The places of a list.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an empty list or one that is too long, [`Errno::MsgSize`] for more
    /// bytes than can be counted.
    #[inline]
    pub fn new(iov: &[RmaIov]) -> Result<Self> {
        if let &[one] = iov
            && one.len <= isize::MAX as usize
        {
            return Ok(Self::one(one));
        }
        Self::several(iov)
    }

    #[inline]
    /// A single place.
    pub fn one(place: RmaIov) -> Self {
        Self {
            list: [place, NOWHERE, NOWHERE, NOWHERE],
            count: 1,
            len: place.len,
        }
    }

    /// As [`Self::new`], off the short way.
    fn several(iov: &[RmaIov]) -> Result<Self> {
        if !(1..=RMA_IOV_LIMIT).contains(&iov.len()) {
            return Err(Errno::Inval);
        }
        let len = iov
            .iter()
            .try_fold(0_usize, |sum, p| sum.checked_add(p.len));
        let len = len.filter(|&len| len <= isize::MAX as usize);
        let mut places = Self {
            list: [NOWHERE; RMA_IOV_LIMIT],
            count: iov.len(),
            len: len.ok_or(Errno::MsgSize)?,
        };
        places.list[..iov.len()].copy_from_slice(iov);
        Ok(places)
    }

    /// Bytes in all.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of them.
    #[inline]
    pub fn all(&self) -> &[RmaIov] {
        &self.list[..self.count]
    }

    /// The only one, if there is only one.
    #[inline]
    pub fn only(&self) -> Option<&RmaIov> {
        (self.count == 1).then(|| &self.list[0])
    }

    /// The parts of them that the bytes from `offset` on, `len` at most, fall into.
    pub fn clip(&self, mut offset: usize, mut len: usize) -> impl Iterator<Item = RmaIov> {
        self.all().iter().filter_map(move |place| {
            let skip = offset.min(place.len);
            let part = RmaIov {
                addr: place.addr.wrapping_add(skip as u64),
                len: len.min(place.len - skip),
                key: place.key,
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

    fn place(addr: u64, len: usize) -> RmaIov {
        RmaIov { addr, len, key: 1 }
    }

    #[test]
    fn a_stretch_of_the_message_falls_into_parts_of_places() {
        let places = Places::new(&[place(100, 4), place(200, 0), place(300, 6)]).unwrap();
        let clip = |offset, len| places.clip(offset, len).collect::<Vec<_>>();
        assert_eq!(clip(0, 10), [place(100, 4), place(300, 6)]);
        assert_eq!(clip(3, 2), [place(103, 1), place(300, 1)]);
        assert_eq!(clip(4, 100), [place(300, 6)]);
        assert_eq!(clip(10, 1), []);
    }

    #[test]
    fn lists_that_cannot_be_counted_are_refused() {
        assert_eq!(Places::new(&[]), Err(Errno::Inval));
        assert_eq!(Places::new(&[place(0, 1); 5]), Err(Errno::Inval));
        let half = place(0, usize::MAX / 2 + 1);
        assert_eq!(Places::new(&[half]), Err(Errno::MsgSize));
        assert_eq!(Places::new(&[half, half]), Err(Errno::MsgSize));
    }
}
