//! Lists of places in the inject pool, beside the commands that name them.

use selvedge::rma::RmaIov;
use selvedge::{Errno, Result};
use selvedge_kit::places::{Places, RMA_IOV_LIMIT};

use crate::proto::iov::{ENTRY, put_words, words_at};
use crate::smr::bytes::Bytes;

/// Bytes of the list in the inject pool: none where the command has room for it.
#[inline]
pub(crate) fn list_len(places: &Places) -> usize {
    match places.all().len() {
        1 => 0,
        count => count * ENTRY,
    }
}

/// Writes the list to the inject pool.
pub(crate) fn put(places: &Places, payload: &Bytes, at: usize) {
    for (index, place) in places.all().iter().enumerate() {
        let words = [place.addr, place.len as u64, place.key];
        put_words(payload, at + index * ENTRY, words);
    }
}

/// Reads a list of `count` out of the inject pool.
///
/// # Errors
/// As [`Places::new`].
pub(crate) fn get(payload: &Bytes, at: usize, count: usize) -> Result<Places> {
    const NOWHERE: RmaIov = RmaIov {
        addr: 0,
        len: 0,
        key: 0,
    };
    let mut list = [NOWHERE; RMA_IOV_LIMIT];
    for (index, place) in list[..count].iter_mut().enumerate() {
        let [addr, len, key] = words_at(payload, at + index * ENTRY);
        let len = usize::try_from(len).map_err(|_| Errno::MsgSize)?;
        *place = RmaIov { addr, len, key };
    }
    Places::new(&list[..count])
}
