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
use selvedge_kit::srx::{Envelope, Posted};

use super::{MAX_OPS, inject, sar, status};
use crate::choice::{Choice, Way};
use crate::cma::Target;
use crate::cmd::{Header, IOV_LIMIT, Nonsense, Offer};
use crate::config::{Config, Protocol};
use crate::peer::{Inbox, Op, OpBody, Peer};
use crate::receive;
use crate::smr::bounce::Filled;
use crate::special::{Blocks, Special};

/// Bytes that are copied before other work has its turn.
const STEP: usize = 1 << 20;
/// Bytes that are copied in about the time of a small message.
const MESSAGE_WORTH: usize = 4096;
/// Offers of one peer that are known at a time: those that it waits for, and those that are over but
/// for segments on their way, of which there are no more than [`MAX_OPS`] either.
const MAX_OFFERS: usize = 2 * MAX_OPS;
/// Bytes of one entry of a list of pieces: address, length, block of special memory.
const ENTRY: usize = 24;

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
    for _ in 0..eager {
        sar::fill(peer.outbox(), msg_id);
    }
    Ok(())
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
    pub(crate) posted: Posted,
    pub(crate) env: Envelope,
    pub(crate) way: Way,
    /// Bytes of the message that have passed, those that did not fit included.
    pub(crate) done: usize,
    since: Instant,
}

/// Where a message lies in the sender's memory.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    count: usize,
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
    fn of(buf: &TxBuf, special: &Special) -> Self {
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
    fn are_special(&self) -> bool {
        self.list[..self.count].iter().all(|piece| piece.block != 0)
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
        let payload = peer.outbox().payload();
        for (index, piece) in self.list[..self.count].iter().enumerate() {
            let at = place + index * ENTRY;
            payload.copy_in(at, &piece.addr.to_le_bytes());
            payload.copy_in(at + 8, &piece.len.to_le_bytes());
            payload.copy_in(at + 16, &piece.block.to_le_bytes());
        }
        Ok(place as u64)
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
        let mut sum = 0_u64;
        for (index, piece) in list[..count].iter_mut().enumerate() {
            let at = at + index * ENTRY;
            *piece = Piece {
                addr: word_at(inbox, at),
                len: word_at(inbox, at + 8),
                block: word_at(inbox, at + 16),
            };
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

fn word_at(inbox: &Inbox, at: usize) -> u64 {
    let mut bytes = [MaybeUninit::uninit(); 8];
    let bytes: &[u8] = inbox.pool.copy_out(at, &mut bytes);
    u64::from_le_bytes(bytes.try_into().expect("eight bytes were asked for"))
}

/// Keeps an offer until its message is received.
pub(crate) fn accept(peer: &mut Peer, offer: &Offer, len: usize) -> Result<(), Nonsense> {
    let inbox = peer.inbox.as_mut().expect("the offer came from it");
    if peer.incoming.contains_key(&offer.msg_id) {
        return Err(Nonsense("msg_id of a message that is under way"));
    }
    if peer.incoming.len() >= MAX_OFFERS {
        return Err(Nonsense("more messages offered than may be outstanding"));
    }
    let pieces = Pieces::read(offer, len, inbox)?;
    let is_its = |filled: &mut Filled| filled.msg_id == offer.msg_id;
    let kept: Vec<_> = peer.early.extract_if(.., is_its).collect();
    let incoming = Incoming {
        pieces,
        eager: offer.eager.saturating_sub(kept.len() as u32),
        kept,
        stage: Stage::Unmatched,
    };
    peer.incoming.insert(offer.msg_id, incoming);
    Ok(())
}

/// The message has met a receive: chooses its way and takes the first step.
pub(crate) fn start(
    peer: &mut Peer,
    config: &Config,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
    posted: Posted,
    env: Envelope,
) {
    let Some(incoming) = peer.incoming.get_mut(&msg_id) else {
        return ep.rx_failed(posted, Errno::ConnReset, src, "the sender is gone");
    };
    let way = match incoming.pieces.are_special() {
        true => Way::Special,
        false => choose(&mut peer.choice, peer.cma.is_some(), config, env.len),
    };
    if way == Way::Special && !incoming.pieces.are_mapped(&peer.blocks) {
        // The news of the block comes over the socket, which the message has overtaken.
        peer.wants_news = true;
    }
    let moving = Moving {
        posted,
        env,
        way,
        done: 0,
        since: Instant::now(),
    };
    incoming.stage = Stage::Moving(moving);
    match way {
        Way::Special if peer.wants_news => {}
        Way::Cma | Way::Special => drop(step(peer, ep, src, msg_id)),
        Way::Bounce => bounce(peer, ep, src, msg_id),
    }
}

/// Asks for the message in segments, and takes those that are there.
fn bounce(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) {
    peer.answer(peer.life, msg_id, status::BOUNCE);
    sar::absorb_kept(peer, ep, src, msg_id);
}

fn choose(choice: &mut Choice, has_cma: bool, config: &Config, len: usize) -> Way {
    match config.protocol {
        _ if !has_cma => Way::Bounce,
        Protocol::Bounce => Way::Bounce,
        Protocol::Cma => Way::Cma,
        Protocol::Auto => choice.next(len),
    }
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
        Ok(()) if moving.done < moving.posted.buf.len().min(moving.env.len) => {}
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
            bounce(peer, ep, src, msg_id);
        }
        Err(errno) => fall_back(peer, ep, src, errno),
    }
    work
}

/// Copies up to [`STEP`] bytes.
fn pull(from: &From<'_>, pieces: &Pieces, moving: &mut Moving) -> Result {
    let want = moving.env.len - moving.done;
    let offset = moving.done;
    for to in moving.posted.buf.pieces(offset, want.min(STEP)) {
        let mut to = to;
        while !to.is_empty() {
            let piece = pieces.at(moving.done as u64).ok_or(Errno::Fault)?;
            let len = usize::try_from(piece.len).map_or(to.len(), |len| len.min(to.len()));
            let (now, later) = to.split_at_mut(len);
            from.read(&piece, now)?;
            moving.done += len;
            to = later;
        }
    }
    Ok(())
}

impl From<'_> {
    /// Fills `to` with bytes of a piece that has as many.
    fn read(&self, piece: &Piece, to: &mut [MaybeUninit<u8>]) -> Result {
        match self {
            Self::Process(target) => target.read(piece.addr, to),
            Self::Blocks(blocks) => {
                let (bytes, at) = blocks
                    .find(piece.block, piece.addr, to.len() as u64)
                    .ok_or(Errno::Fault)?;
                bytes.copy_out(at, to);
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
    peer.choice
        .learn(moving.env.len, moving.way, moving.since, Instant::now());
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
    if moving.way == Way::Bounce {
        peer.choice
            .learn(moving.env.len, Way::Bounce, moving.since, Instant::now());
    }
    let fits = moving.env.len.min(moving.posted.buf.len());
    peer.answer(peer.life, msg_id, status);
    receive::report(peer, ep, src, moving.posted, &moving.env, fits);
}

/// Cross-memory attach does not work with this peer after all: it bounces, from now on.
#[cold]
fn fall_back(peer: &mut Peer, ep: &Ep, src: FiAddr, errno: Errno) {
    log::info!(
        target: "selvedge::shm::ep_data",
        "cross-memory attach with {} failed ({errno}); its large messages are bounced", peer.name
    );
    peer.cma = None;
    let mut moved = Vec::new();
    for (&id, incoming) in &mut peer.incoming {
        if let Stage::Moving(moving) = &mut incoming.stage
            && moving.way == Way::Cma
        {
            moving.way = Way::Bounce;
            moving.done = 0;
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
    let answer = status::FAILED | (errno.as_raw() as u32) << 8;
    peer.answer(peer.life, msg_id, answer);
    let detail = format!("the bytes of {}'s message could not be read", peer.name);
    ep.rx_failed(moving.posted, errno, src, detail);
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
        ep.rx_failed(moving.posted, errno, src, detail);
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
