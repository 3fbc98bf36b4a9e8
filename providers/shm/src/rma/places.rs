//! Places: the stretches of a peer's registered memory that one operation names.

use selvedge::rma::RmaIov;
use selvedge::{Errno, Result};

use crate::proto::iov::{ENTRY, put_words, words_at};
use crate::smr::bytes::Bytes;

/// Pieces of a remote list.
pub(crate) const RMA_IOV_LIMIT: usize = 4;

/// Up to [`RMA_IOV_LIMIT`] stretches of registered memory, which hold no more bytes in all than can
/// be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
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
    pub(crate) fn new(iov: &[RmaIov]) -> Result<Self> {
        if let &[one] = iov
            && one.len <= isize::MAX as usize
        {
            return Ok(Self::one(one));
        }
        Self::several(iov)
    }

    #[inline]
    pub(crate) fn one(place: RmaIov) -> Self {
        Self {
            list: [place, NOWHERE, NOWHERE, NOWHERE],
            count: 1,
            len: place.len,
        }
    }

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
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All of them.
    #[inline]
    pub(crate) fn all(&self) -> &[RmaIov] {
        &self.list[..self.count]
    }

    /// The only one, if there is only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<&RmaIov> {
        (self.count == 1).then(|| &self.list[0])
    }

    /// The parts of them that the bytes from `offset` on, `len` at most, fall into.
    pub(crate) fn clip(&self, mut offset: usize, mut len: usize) -> impl Iterator<Item = RmaIov> {
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

    /// Bytes of the list in the inject pool: none where the command has room for it.
    #[inline]
    pub(crate) fn list_len(&self) -> usize {
        match self.count {
            1 => 0,
            count => count * ENTRY,
        }
    }

    /// Writes the list to the inject pool.
    pub(crate) fn put(&self, payload: &Bytes, at: usize) {
        for (index, place) in self.all().iter().enumerate() {
            let words = [place.addr, place.len as u64, place.key];
            put_words(payload, at + index * ENTRY, words);
        }
    }

    /// Reads a list of `count` out of the inject pool.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn get(payload: &Bytes, at: usize, count: usize) -> Result<Self> {
        let mut list = [NOWHERE; RMA_IOV_LIMIT];
        for (index, place) in list[..count].iter_mut().enumerate() {
            let [addr, len, key] = words_at(payload, at + index * ENTRY);
            let len = usize::try_from(len).map_err(|_| Errno::MsgSize)?;
            *place = RmaIov { addr, len, key };
        }
        Self::several(&list[..count])
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
