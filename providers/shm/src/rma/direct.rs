//! Direct: one-sided operations on special memory, by loads and stores of this process.
//!
//! No command, no system call, and no help of the owner: key, bounds and rights are checked against
//! its table, then the bytes are copied where they belong, all before the post returns. What was
//! looked up is kept as a *window* onto the region, and believed as long as the table's row is the
//! one that it was made from.
//!
//! The check comes before the copy and not behind it: a block that is freed meanwhile is mapped
//! here until we let go of it, and never used for anything else. What is read from it then is what
//! it held, and what is written is lost, as if the operation had come before, or after, the end.
//!
//! A region that its owner counts is not for this: the owner does what is asked, and counts.

use selvedge::rma::RmaIov;
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::access::Window;
use crate::peers::peer::Peer;
use crate::smr::bytes::Span;
use crate::smr::keys::{Kind, RIGHT_READ, RIGHT_WRITE};
use crate::transfers::cmd::IOV_LIMIT;

/// Where an access goes.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) span: Span,
    pub(crate) at: usize,
}

impl Peer {
    /// Whether any special memory of the peer's is mapped here.
    #[inline]
    pub(crate) fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Puts a message into the peer's memory at once, if all of it is special, mapped here, and may
    /// be written. `false`, and nothing has happened, if it has to go another way or is not allowed.
    #[inline(always)]
    pub(crate) fn write_directly(&mut self, buf: &TxBuf, pieces: &[RmaIov]) -> bool {
        if let [piece] = pieces
            && let Some((span, at)) = self.windows.find(piece, RIGHT_WRITE)
            && piece.len == buf.len()
        {
            return put(span, at, buf);
        }
        self.write_pieces(buf, pieces)
    }

    /// Gets a message out of the peer's memory at once, likewise.
    #[inline(always)]
    pub(crate) fn read_directly(&mut self, buf: &mut RxBuf, pieces: &[RmaIov]) -> bool {
        if let [piece] = pieces
            && let Some((span, at)) = self.windows.find(piece, RIGHT_READ)
            && piece.len == buf.len()
        {
            return get(span, at, buf);
        }
        self.read_pieces(buf, pieces)
    }

    /// Where a piece of the peer's memory is mapped here, if it is special and may be used like
    /// this.
    #[inline]
    pub(crate) fn find_directly(&mut self, piece: &RmaIov, rights: u32) -> Option<(&Span, usize)> {
        if self.windows.find(piece, rights).is_none() {
            self.open_window(piece, rights)?;
        }
        self.windows.find(piece, rights)
    }

    /// The same, to keep.
    #[inline]
    pub(crate) fn place_directly(&mut self, piece: &RmaIov, rights: u32) -> Option<Place> {
        let (span, at) = self.find_directly(piece, rights)?;
        let span = span.clone();
        Some(Place { span, at })
    }

    #[inline(never)]
    fn write_pieces(&mut self, buf: &TxBuf, pieces: &[RmaIov]) -> bool {
        let Some(places) = self.places(pieces, buf.len(), RIGHT_WRITE) else {
            return false;
        };
        let mut done = 0;
        for (place, piece) in places.iter().flatten().zip(pieces) {
            let mut at = place.at;
            for part in buf.segments(done, piece.len) {
                let len = part.len();
                if !place.span.put(at, part) {
                    return false;
                }
                at += len;
            }
            done += piece.len;
        }
        true
    }

    #[inline(never)]
    fn read_pieces(&mut self, buf: &mut RxBuf, pieces: &[RmaIov]) -> bool {
        let Some(places) = self.places(pieces, buf.len(), RIGHT_READ) else {
            return false;
        };
        let mut done = 0;
        for (place, piece) in places.iter().flatten().zip(pieces) {
            let mut at = place.at;
            for part in buf.segments(done, piece.len) {
                let len = part.len();
                if !place.span.get(at, part) {
                    return false;
                }
                at += len;
            }
            done += piece.len;
        }
        true
    }

    /// Where all pieces are, if they are as long as the message.
    fn places(
        &mut self,
        pieces: &[RmaIov],
        len: usize,
        rights: u32,
    ) -> Option<[Option<Place>; IOV_LIMIT]> {
        let mut places = [const { None }; IOV_LIMIT];
        let mut sum = 0_usize;
        if !(1..=IOV_LIMIT).contains(&pieces.len()) {
            return None;
        }
        for (place, piece) in places.iter_mut().zip(pieces) {
            sum = sum.checked_add(piece.len)?;
            *place = Some(self.place_directly(piece, rights)?);
        }
        (sum == len).then_some(places)
    }

    /// Looks a region up, and keeps the window onto it.
    #[cold]
    fn open_window(&mut self, piece: &RmaIov, rights: u32) -> Option<()> {
        let grant = self.keys.check(piece, rights).ok()?;
        let row = &grant.row;
        if row.kind != Kind::Special || row.is_counted() {
            return None;
        }
        let (bytes, at) = self.blocks.find(row.block, row.memory, row.len)?;
        let span = bytes.span(at, usize::try_from(row.len).ok()?)?;
        // The row is one word of the peer, how the block is mapped another: the lesser one counts.
        let usable = match span.is_writable() {
            true => row.rights,
            false => row.rights & !RIGHT_WRITE,
        };
        if usable & rights != rights {
            return None;
        }
        let window = Window {
            key: row.key,
            start: row.start,
            rights: usable,
            span,
            row: self.keys.seen(&grant)?,
        };
        self.windows.keep(window);
        Some(())
    }
}

#[inline(always)]
fn put(span: &Span, at: usize, buf: &TxBuf) -> bool {
    match buf.len() {
        8 => span.put_word(at, buf.word()),
        _ => put_long(span, at, buf),
    }
}

#[inline(never)]
fn put_long(span: &Span, mut at: usize, buf: &TxBuf) -> bool {
    buf.segments(0, buf.len()).all(|part| {
        let begin = at;
        at += part.len();
        span.put(begin, part)
    })
}

#[inline(always)]
fn get(span: &Span, at: usize, buf: &mut RxBuf) -> bool {
    if buf.len() == 8
        && let Some(word) = span.word(at)
    {
        buf.write_word(word);
        return true;
    }
    get_long(span, at, buf)
}

#[inline(never)]
fn get_long(span: &Span, mut at: usize, buf: &mut RxBuf) -> bool {
    let len = buf.len();
    buf.segments(0, len).all(|part| {
        let begin = at;
        at += part.len();
        span.get(begin, part)
    })
}
