//! Iov: the sender names its memory, the receiver copies from there, or asks for bounce segments.
//!
//! The sender offers ([`send`]); the receiver, once the message has met a receive, chooses the way
//! ([`start`]) and answers when it is done. Copies are made in steps, so that a large message does
//! not keep the small ones waiting.
//!
//! If the memory is special and mapped by the receiver, it copies from its mapping, without a system
//! call; that works where cross-memory attach is denied, too.

use selvedge::{Errno, FiAddr, Result};
use selvedge_kit::Ep;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::telemetry::EventKind;

use super::incoming::{ENTRY, Moving, Piece, Pieces, Stage};
use super::into::{Into, To};
use super::transfer::{end, expect, finish};
use super::{MAX_OPS, inject, sar, status};
use crate::connect::rendezvous::PACKETS_AHEAD;
use crate::memory::special::{Blocks, Special};
use crate::peers::ops::{Op, OpBody};
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::provider::config::{Config, Protocol};
use crate::transfers::choice::Way;
use crate::transfers::cma::Target;
use crate::transfers::cmd::{Header, IOV_LIMIT, Nonsense, Offer};

/// Bytes that are copied before other work has its turn.
const STEP: usize = 1 << 20;
/// Bytes that are copied in about the time of a small message.
const MESSAGE_WORTH: usize = 4096;
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

impl Pieces {
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
}

/// Keeps an offer until its message is received.
pub(crate) fn accept(peer: &mut Peer, offer: &Offer, len: usize) -> Result<(), Nonsense> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(());
    };
    let pieces = Pieces::read(offer, len, inbox)?;
    expect(peer, offer.msg_id, offer.eager, pieces)
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

/// Cross-memory attach does not work with this peer after all: it bounces, from now on.
#[cold]
fn fall_back(peer: &mut Peer, ep: &Ep, src: FiAddr, errno: Errno) {
    log::info!(
        target: "selvedge::shm::ep_data",
        "large messages of {} are bounced from now on", peer.name
    );
    ep.stats
        .record_event(EventKind::NoCma, peer.name.as_str(), errno.as_raw() as u64);
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
