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
use selvedge::{FiAddr, OpFlags};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::cmd::IOV_LIMIT;
use crate::msg::TX_DEFAULTS;
use crate::peer::{Peer, State as PeerState};
use crate::rma::cmd::commit_told;
use crate::smr::bytes::Span;
use crate::smr::keys::{Kind, RIGHT_READ, RIGHT_WRITE, Seen};
use crate::smr::prefetch;
use crate::state::State;

/// Windows that are kept of one peer, by the lowest bits of their keys.
const WINDOWS: usize = 8;

/// The regions of a peer that were used last.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    /// Empty until there is one.
    kept: Vec<Option<Window>>,
}

/// Where the last access went that waited for its line. Most go to the same region as the one
/// before: the line of the next one is asked for before anything is looked up, and comes meanwhile.
#[derive(Debug)]
pub(crate) struct Aim {
    peer: FiAddr,
    key: u64,
    /// What is to be added to an address that the region is addressed by.
    shift: u64,
}

impl Aim {
    pub(crate) const NOWHERE: Self = Self {
        peer: FiAddr::UNSPEC,
        key: 0,
        shift: 0,
    };

    /// Where a piece probably is mapped here: for a hint, and nothing else.
    #[inline(always)]
    pub(crate) fn guess(&self, peer: FiAddr, piece: &RmaIov) -> Option<*const u8> {
        let is_same = self.peer == peer && self.key == piece.key;
        let addr = piece.addr.wrapping_add(self.shift);
        is_same.then(|| std::ptr::without_provenance(addr as usize))
    }

    /// Whether a piece is elsewhere than it was guessed to be: at `at` of a span.
    #[inline(always)]
    pub(crate) fn is_off(guess: Option<*const u8>, span: &Span, at: usize) -> bool {
        guess.is_none_or(|line| line.addr() != span.address(at))
    }

    /// What was found: the piece is at `at` of a span.
    #[inline(always)]
    pub(crate) fn at(peer: FiAddr, piece: &RmaIov, span: &Span, at: usize) -> Self {
        Self {
            peer,
            key: piece.key,
            shift: (span.address(at) as u64).wrapping_sub(piece.addr),
        }
    }
}

/// A region of special memory that is mapped here.
#[derive(Clone, Debug)]
struct Window {
    key: u64,
    /// What its first byte is named by.
    start: u64,
    rights: u32,
    span: Span,
    row: Seen,
}

impl State {
    /// Puts eight bytes into a peer's memory, if nothing has to be found out before and nothing else
    /// is to be done: the usual case. `false`, and nothing has happened, otherwise.
    #[inline(always)]
    pub(super) fn put_word(
        &mut self,
        word: u64,
        peer: FiAddr,
        place: &RmaIov,
        report: &Report,
    ) -> bool {
        let has_room = !report.completes || self.ep.tx_cq.room() > 0;
        if has_room
            && let Some((span, at)) = self.usual(peer, place, RIGHT_WRITE, report.flags)
            && span.put_word(at, word)
        {
            report.done_plainly(&self.ep);
            return true;
        }
        false
    }

    /// Puts eight bytes into a peer's memory and sends it the data that comes with them, likewise.
    #[inline(always)]
    pub(super) fn put_word_and_tell(
        &mut self,
        word: u64,
        dest: FiAddr,
        place: &RmaIov,
        data: u64,
        report: &Report,
    ) -> bool {
        let has_room = !report.completes || self.ep.tx_cq.room() > 0;
        let flags = report.flags.difference(OpFlags::REMOTE_CQ_DATA);
        if has_room
            && let Some(peer) = self.usual_peer(dest, flags)
            && peer.state == PeerState::Linked
            && let Some((span, at)) = peer.windows.find(place, RIGHT_WRITE)
            && let Some(out) = &mut peer.out
            && let Some(slot) = out.tx.claim()
            && span.put_word(at, word)
        {
            commit_told(slot, data, 8);
            out.mark_last();
            if !peer.is_looking() {
                self.ring_at(dest, flags);
            }
            report.done_plainly(&self.ep);
            return true;
        }
        false
    }

    /// Gets eight bytes out of a peer's memory, likewise.
    #[inline(always)]
    pub(super) fn get_word(
        &mut self,
        mut buf: RxBuf,
        peer: FiAddr,
        place: &RmaIov,
        report: &Report,
    ) -> bool {
        let guess = self.aim.guess(peer, place);
        if let Some(line) = guess {
            prefetch::for_reading(line);
        }
        if self.ep.tx_cq.room() > 0
            && let Some((span, at)) = self.usual(peer, place, RIGHT_READ, report.flags)
            && let Some(word) = span.word(at)
        {
            buf.write_word(word);
            drop(buf);
            if Aim::is_off(guess, span, at) {
                self.aim = Aim::at(peer, place, span, at);
            }
            report.done_plainly(&self.ep);
            return true;
        }
        false
    }

    /// Where a piece of a peer's memory is mapped here, if nothing has to be found out before it is
    /// used like this.
    #[inline(always)]
    fn usual(
        &mut self,
        peer: FiAddr,
        place: &RmaIov,
        rights: u32,
        flags: OpFlags,
    ) -> Option<(&Span, usize)> {
        self.usual_peer(peer, flags)?.windows.find(place, rights)
    }

    /// A peer, if nothing has to be found out before its memory is used.
    #[inline(always)]
    pub(crate) fn usual_peer(&mut self, peer: FiAddr, flags: OpFlags) -> Option<&mut Peer> {
        if !USUAL.contains(flags) {
            return None;
        }
        self.known_peer(peer).filter(|peer| !peer.is_careful)
    }
}

/// What the usual operation may ask for: all of it is true of one that is done before its post
/// returns.
const USUAL: OpFlags = TX_DEFAULTS.union(OpFlags::MORE);

/// Where an access goes.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) span: Span,
    pub(crate) at: usize,
}

impl Windows {
    /// Forgets them all, and lets their memory go.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Where a piece is in the window that was kept of its region, if one was.
    #[inline(always)]
    pub(crate) fn find(&self, piece: &RmaIov, rights: u32) -> Option<(&Span, usize)> {
        let window = self.kept.get(slot(piece.key))?.as_ref()?;
        let is_it = window.key == piece.key && window.rights & rights == rights;
        if !is_it || !window.row.is_current() {
            return None;
        }
        let at = piece.addr.wrapping_sub(window.start) as usize;
        let is_inside = at <= window.span.len() && piece.len <= window.span.len() - at;
        is_inside.then_some((&window.span, at))
    }
}

#[inline(always)]
const fn slot(key: u64) -> usize {
    key as usize % WINDOWS
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
            for part in buf.pieces(done, piece.len) {
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
            for part in buf.pieces(done, piece.len) {
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
        self.windows.kept.resize(WINDOWS, None);
        self.windows.kept[slot(piece.key)] = Some(window);
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
    buf.pieces(0, buf.len()).all(|part| {
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
    buf.pieces(0, len).all(|part| {
        let begin = at;
        at += part.len();
        span.get(begin, part)
    })
}
