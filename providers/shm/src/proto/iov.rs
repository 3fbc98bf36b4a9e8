//! Iov: the sender names its memory, the receiver copies from there, or asks for bounce segments.
//!
//! The sender offers ([`send`]); the receiver, once the message has met a receive, chooses the way
//! ([`start`]) and answers when it is done. Copies are made in steps, so that a large message does
//! not keep the small ones waiting.
//!
//! If the memory is special and mapped by the receiver, it copies from its mapping, without a system
//! call; that works where cross-memory attach is denied, too.

use std::mem::MaybeUninit;
use std::time::Instant;

use selvedge::{Errno, FiAddr, Result};
use selvedge_kit::Ep;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::sight::What;

use super::into::{Into, To};
use super::{MAX_OPS, extent, inject, sar, status};
use crate::choice::{Watch, Way};
use crate::cma::Target;
use crate::cmd::{Header, IOV_LIMIT, Nonsense, Offer};
use crate::config::{Config, Protocol};
use crate::contact::PACKETS_AHEAD;
use crate::peer::{Inbox, Op, OpBody, Peer};
use crate::sight::way;
use crate::smr::bounce::Filled;
use crate::smr::bytes::Bytes;
use crate::special::{Blocks, Special};

/// Bytes that are copied before other work has its turn.
const STEP: usize = 1 << 20;
/// Bytes that are copied in about the time of a small message.
const MESSAGE_WORTH: usize = 4096;
/// Offers of one peer that are known at a time: those that it waits for, those that are over but for
/// segments on their way, and bytes that we have asked for, of each no more than [`MAX_OPS`].
const MAX_OFFERS: usize = 3 * MAX_OPS;
/// Bytes of one entry of a list of pieces: address, length, block of special memory.
pub(crate) const ENTRY: usize = 24;

/// Offers a message to the peer.
pub(crate) fn send(
    peer: &mut Peer,
    config: &Config,
    special: &Special,
    header: &Header,
    buf: TxBuf,
    mut op: Op,
) -> Result {
    if peer.outstanding() >= MAX_OPS {
        return Err(Errno::Again);
    }
    let (len, pieces) = (buf.len(), Pieces::of(&buf, special));
    let eager = match pieces.are_special() {
        true => 0,
        false => sar::eager_segments(peer, config, len),
    };
    let place = pieces.publish(peer)?;
    op.body = OpBody::Offered {
        buf,
        filled: 0,
        granted: false,
        special: pieces.are_special(),
    };
    let msg_id = peer.outbox().ops.insert(op);
    let offer = Offer {
        msg_id,
        count: pieces.count as u32,
        place,
        eager,
        block: pieces.list[0].block,
    };
    header.commit_iov(peer.slot(), len, offer);
    fill_eager(peer, msg_id, eager);
    Ok(())
}

/// Fills the segments that follow unasked.
pub(crate) fn fill_eager(peer: &mut Peer, msg_id: u32, eager: u32) {
    for _ in 0..eager {
        // Private memory is never denied.
        let _ = sar::fill(peer.outbox(), msg_id);
    }
}

/// A large message of a peer, from its offer to its end.
#[derive(Debug)]
pub(crate) struct Incoming {
    pieces: Pieces,
    /// Unasked segments that have not been seen yet.
    pub(crate) eager: u32,
    /// Segments that came before it was known whether they are needed.
    pub(crate) kept: Vec<Filled>,
    pub(crate) stage: Stage,
}

/// How far a large message is.
#[derive(Debug)]
pub(crate) enum Stage {
    /// No receive was posted for it.
    Unmatched,
    /// On its way into a receive.
    Moving(Moving),
    /// Received another way; unasked segments are still to come.
    Discarding,
}

/// A message on its way into a receive.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) into: Into,
    /// Bytes of the message.
    pub(crate) len: usize,
    pub(crate) way: Way,
    /// Bytes of the message that have passed, those that did not fit included.
    pub(crate) done: usize,
    /// Runs where the way was chosen among several.
    watch: Option<Watch>,
}

/// Where a message lies in the sender's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub(crate) count: usize,
    list: [Piece; IOV_LIMIT],
}

/// A stretch of the sender's memory.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    addr: u64,
    len: u64,
    /// The block of special memory that it lies in; 0 for none.
    block: u64,
}

impl Pieces {
    /// No pieces: the bytes are not copied from there.
    fn none() -> Self {
        Self {
            count: 0,
            list: [Piece::default(); IOV_LIMIT],
        }
    }

    pub(crate) fn of(buf: &TxBuf, special: &Special) -> Self {
        let mut pieces = Self {
            count: 0,
            list: [Piece::default(); IOV_LIMIT],
        };
        for piece in buf.pieces(0, buf.len()) {
            let (addr, len) = (
                piece.as_ptr().expose_provenance() as u64,
                piece.len() as u64,
            );
            let block = special.block_of(addr, len).unwrap_or(0);
            pieces.list[pieces.count] = Piece { addr, len, block };
            pieces.count += 1;
        }
        pieces
    }

    /// Whether all of them lie in special memory.
    pub(crate) fn are_special(&self) -> bool {
        self.list[..self.count].iter().all(|piece| piece.block != 0)
    }

    /// Whether a process can have memory there, of such a length.
    fn are_possible(&self, peer: &Peer) -> bool {
        let mut pieces = self.list[..self.count].iter();
        pieces.all(|piece| extent::is_possible(peer, piece.addr, piece.len))
    }

    /// Whether all of them lie in special memory that is mapped here.
    fn are_mapped(&self, blocks: &Blocks) -> bool {
        let mut pieces = self.list[..self.count].iter();
        pieces.all(|piece| blocks.find(piece.block, piece.addr, piece.len).is_some())
    }

    /// Reserves a command, and puts the list where the peer finds it.
    fn publish(&self, peer: &mut Peer) -> Result<u64> {
        if self.count == 1 {
            peer.reserve(0)?;
            return Ok(self.list[0].addr);
        }
        let place = peer.reserve(self.count * ENTRY)?;
        self.put(peer.outbox().payload(), place);
        Ok(place as u64)
    }

    /// Writes the list to the inject pool.
    pub(crate) fn put(&self, payload: &Bytes, place: usize) {
        for (index, piece) in self.list[..self.count].iter().enumerate() {
            let words = [piece.addr, piece.len, piece.block];
            put_words(payload, place + index * ENTRY, words);
        }
    }

    fn read(offer: &Offer, len: usize, inbox: &mut Inbox) -> Result<Self, Nonsense> {
        let count = offer.count as usize;
        let mut list = [Piece::default(); IOV_LIMIT];
        if count == 1 {
            list[0] = Piece {
                addr: offer.place,
                len: len as u64,
                block: offer.block,
            };
            return Ok(Self { count, list });
        }
        let at = inject::locate(inbox, offer.place, count * ENTRY)?;
        Self::get(&inbox.pool, at, count, len)
    }

    /// Reads a list out of the inject pool.
    pub(crate) fn get(
        payload: &Bytes,
        at: usize,
        count: usize,
        len: usize,
    ) -> Result<Self, Nonsense> {
        let mut list = [Piece::default(); IOV_LIMIT];
        let mut sum = 0_u64;
        for (index, piece) in list[..count].iter_mut().enumerate() {
            let [addr, len, block] = words_at(payload, at + index * ENTRY);
            *piece = Piece { addr, len, block };
            sum = sum.checked_add(piece.len).ok_or(Nonsense("piece length"))?;
        }
        if sum != len as u64 {
            return Err(Nonsense("pieces that do not add up"));
        }
        Ok(Self { count, list })
    }

    /// The stretch of the sender's memory that begins `offset` bytes into the message.
    fn at(&self, mut offset: u64) -> Option<Piece> {
        for piece in &self.list[..self.count] {
            if offset < piece.len {
                return Some(Piece {
                    addr: piece.addr.checked_add(offset)?,
                    len: piece.len - offset,
                    block: piece.block,
                });
            }
            offset -= piece.len;
        }
        None
    }
}

/// One entry of a list.
pub(crate) fn put_words(payload: &Bytes, at: usize, words: [u64; 3]) {
    payload.copy_in(at, words.map(u64::to_le_bytes).as_flattened());
}

/// One entry of a list.
pub(crate) fn words_at(payload: &Bytes, at: usize) -> [u64; 3] {
    let mut bytes = [MaybeUninit::uninit(); ENTRY];
    let bytes: &[u8] = payload.copy_out(at, &mut bytes);
    let (words, _) = bytes.as_chunks::<8>();
    [0, 1, 2].map(|word| u64::from_le_bytes(words[word]))
}

/// Keeps an offer until its message is received.
pub(crate) fn accept(peer: &mut Peer, offer: &Offer, len: usize) -> Result<(), Nonsense> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(());
    };
    let pieces = Pieces::read(offer, len, inbox)?;
    expect(peer, offer.msg_id, offer.eager, pieces)
}

/// Expects the bytes of a message, which lie in these pieces of the peer's memory.
pub(crate) fn expect(
    peer: &mut Peer,
    msg_id: u32,
    eager: u32,
    pieces: Pieces,
) -> Result<(), Nonsense> {
    if peer.incoming.contains_key(&msg_id) {
        return Err(Nonsense("msg_id of a message that is under way"));
    }
    if peer.incoming.len() >= MAX_OFFERS {
        return Err(Nonsense("more messages offered than may be outstanding"));
    }
    if !pieces.are_possible(peer) {
        return Err(Nonsense("an offer of more bytes than its process can have"));
    }
    let is_its = |filled: &mut Filled| filled.msg_id == msg_id;
    let kept: Vec<_> = peer.early.extract_if(.., is_its).collect();
    let incoming = Incoming {
        pieces,
        eager: eager.saturating_sub(kept.len() as u32),
        kept,
        stage: Stage::Unmatched,
    };
    peer.incoming.insert(msg_id, incoming);
    Ok(())
}

/// Expects bytes that we have asked for, in segments of this number: [`take_stream`] must follow.
pub(crate) fn expect_stream(peer: &mut Peer, stream: u32) -> Result<(), Nonsense> {
    expect(peer, stream, 0, Pieces::none())
}

/// Says where the bytes of an expected stream go.
pub(crate) fn take_stream(peer: &mut Peer, stream: u32, into: Into, len: usize) {
    if let Some(incoming) = peer.incoming.get_mut(&stream) {
        incoming.stage = Stage::Moving(Moving {
            into,
            len,
            way: Way::Bounce,
            done: 0,
            watch: None,
        });
    }
}

/// The message has met a receive: chooses its way and takes the first step.
pub(crate) fn start(
    peer: &mut Peer,
    config: &Config,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
    into: Into,
    len: usize,
) {
    let Some(incoming) = peer.incoming.get_mut(&msg_id) else {
        return into.fail(ep, Errno::ConnReset, src, "the sender is gone".into());
    };
    let (way, watch) = match (config.protocol, peer.cma) {
        _ if incoming.pieces.are_special() => (Way::Special, None),
        (Protocol::Bounce, _) | (_, None) => (Way::Bounce, None),
        (Protocol::Cma, _) => (Way::Cma, None),
        (Protocol::Auto, _) => {
            let (way, watch) = peer.choice.start(len, &peer.name);
            (way, Some(watch))
        }
    };
    if way == Way::Special && !incoming.pieces.are_mapped(&peer.blocks) {
        // The news of the block comes over the socket, which the message has overtaken.
        peer.news_ahead = PACKETS_AHEAD;
    }
    let moving = Moving {
        into,
        len,
        way,
        done: 0,
        watch,
    };
    incoming.stage = Stage::Moving(moving);
    match way {
        _ if way != Way::Bounce && peer.news_ahead > 0 => {}
        Way::Cma | Way::Special => drop(step(peer, ep, src, msg_id)),
        Way::Bounce => bounce(peer, ep, src, msg_id),
    }
}

/// Asks for the message in segments, and takes those that are there.
fn bounce(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) {
    peer.answer(peer.life, msg_id, status::BOUNCE);
    sar::absorb_kept(peer, ep, src, msg_id);
}

/// Where the receiver copies from.
enum From<'a> {
    /// The memory of the sender's process.
    Process(Target),
    /// What of it is mapped here.
    Blocks(&'a Blocks),
}

/// Copies the next part of a message that is copied from the sender's memory. Says how many small
/// messages could have been received meanwhile; 0 when there was nothing to do.
pub(crate) fn step(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) -> usize {
    let Some(incoming) = peer.incoming.get_mut(&msg_id) else {
        return 0;
    };
    let Stage::Moving(moving) = &mut incoming.stage else {
        return 0;
    };
    let from = match (moving.way, peer.cma) {
        (Way::Special, _) => From::Blocks(&peer.blocks),
        (Way::Cma, Some(target)) => From::Process(target),
        _ => return 0,
    };
    let (pieces, before) = (incoming.pieces, moving.done);
    let result = pull(&from, &pieces, moving);
    let work = 1 + (moving.done - before) / MESSAGE_WORTH;
    match result {
        Ok(()) if moving.done < moving.into.takes(moving.len) => {}
        Ok(()) => pulled(peer, ep, src, msg_id),
        // A block that cannot be mapped here: it is memory like any other then.
        Err(Errno::Fault) if moving.way == Way::Special && peer.cma.is_some() => {
            moving.way = Way::Cma;
            moving.done = 0;
        }
        // Memory of a device, for instance: the sender itself can read it.
        Err(Errno::Fault) => {
            moving.way = Way::Bounce;
            moving.done = 0;
            moving.watch = None;
            bounce(peer, ep, src, msg_id);
        }
        Err(errno) => fall_back(peer, ep, src, errno),
    }
    work
}

/// Copies up to [`STEP`] bytes.
fn pull(from: &From<'_>, pieces: &Pieces, moving: &mut Moving) -> Result {
    let want = (moving.len - moving.done).min(STEP);
    let mut done = moving.done;
    let result = moving.into.stretches(moving.done, want, &mut |mut to| {
        let mut at = 0;
        while at < to.len() {
            let piece = pieces.at(done as u64).ok_or(Errno::Fault)?;
            let left = to.len() - at;
            let len = usize::try_from(piece.len).map_or(left, |len| len.min(left));
            from.read(&piece, to.part(at, len))?;
            at += len;
            done += len;
        }
        Ok(())
    });
    moving.done = match moving.into.refusal() {
        Some(_) => moving.len,
        None => done,
    };
    result
}

impl From<'_> {
    /// Fills `to` with bytes of a piece that has as many.
    fn read(&self, piece: &Piece, to: To<'_>) -> Result {
        match (self, to) {
            (Self::Process(target), To::Private(to)) => target.read(piece.addr, to),
            (Self::Process(target), To::Shared(to)) => target.read_shared(piece.addr, to),
            (Self::Blocks(blocks), to) => {
                let (bytes, at) = blocks
                    .find(piece.block, piece.addr, to.len() as u64)
                    .ok_or(Errno::Fault)?;
                to.copy_from(bytes, at);
                Ok(())
            }
        }
    }
}

/// The last byte was copied. The copy is good if the sender had not closed by then.
fn pulled(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) {
    let closed = peer.inbox.as_ref().is_none_or(|i| i.region.is_closed());
    if closed {
        return give_up(peer, ep, src, msg_id, Errno::ConnReset);
    }
    let Some(moving) = end(peer, msg_id) else {
        return;
    };
    finish(peer, ep, src, msg_id, moving, status::DONE);
}

/// Reports a received message, here and to the sender.
pub(crate) fn finish(
    peer: &mut Peer,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
    moving: Moving,
    status: u32,
) {
    if let Some(watch) = moving.watch {
        peer.choice
            .learn(moving.len, moving.way, watch, Instant::now());
    }
    let status = moving.into.refusal().map_or(status, status::failed);
    peer.answer(peer.life, msg_id, status);
    if let Into::Receive(..) = moving.into {
        ep.sight.count_way(way::received(moving.way), moving.len);
    }
    moving.into.finish(peer, ep, src);
}

/// Cross-memory attach does not work with this peer after all: it bounces, from now on.
#[cold]
fn fall_back(peer: &mut Peer, ep: &Ep, src: FiAddr, errno: Errno) {
    log::info!(
        target: "selvedge::shm::ep_data",
        "large messages of {} are bounced from now on", peer.name
    );
    ep.sight
        .note(What::NoCma, peer.name.as_str(), errno.as_raw() as u64);
    peer.cma = None;
    let mut moved = Vec::new();
    for (&id, incoming) in &mut peer.incoming {
        if let Stage::Moving(moving) = &mut incoming.stage
            && moving.way == Way::Cma
        {
            moving.way = Way::Bounce;
            moving.done = 0;
            moving.watch = None;
            moved.push(id);
        }
    }
    for id in moved {
        bounce(peer, ep, src, id);
    }
}

/// The bytes cannot be had: both ends learn of it.
fn give_up(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32, errno: Errno) {
    let Some(moving) = end(peer, msg_id) else {
        return;
    };
    peer.answer(peer.life, msg_id, status::failed(errno));
    let detail = format!("the bytes of {}'s message could not be read", peer.name);
    moving.into.fail(ep, errno, src, detail);
}

/// The sender cannot bounce the message that it was asked to. `false` when it was not asked.
pub(crate) fn aborted(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32, errno: Errno) -> bool {
    let is_asked = peer.incoming.get(&msg_id).is_some_and(
        |incoming| matches!(&incoming.stage, Stage::Moving(moving) if moving.way == Way::Bounce),
    );
    if !is_asked {
        return false;
    }
    if let Some(moving) = end(peer, msg_id) {
        let detail = format!("{} could not send the bytes of its message", peer.name);
        moving.into.fail(ep, errno, src, detail);
    }
    true
}

/// Takes a message that is on its way out of the table, unless unasked segments still come.
pub(crate) fn end(peer: &mut Peer, msg_id: u32) -> Option<Moving> {
    let incoming = peer.incoming.get_mut(&msg_id)?;
    let stage = std::mem::replace(&mut incoming.stage, Stage::Discarding);
    let kept = std::mem::take(&mut incoming.kept);
    if incoming.eager == 0 {
        peer.incoming.remove(&msg_id);
    }
    for filled in kept {
        peer.answer(peer.life, filled.segment, status::SEGMENT);
    }
    match stage {
        Stage::Moving(moving) => Some(moving),
        Stage::Unmatched | Stage::Discarding => None,
    }
}
