//! Write: the bytes go as a command, and the target puts them where its own table says.
//!
//! Inside the command, through the inject pool, or offered like a large message, which the target
//! copies from the writer's memory or has bounced. It checks key, bounds and rights again, for each
//! step of a large one anew.

use std::sync::Arc;

use selvedge::rma::RmaIov;
use selvedge::{Errno, OpFlags, Result};
use selvedge_kit::copy::TxBuf;

use super::cmd::{Header, Notice, Small, Write, list_len, put_list, write_room};
use super::{Access, Local, Refused};
use crate::memory::keys::Regions;
use crate::peers::ops::OpBody;
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::provider::setup::Setup;
use crate::provider::shared::Shared;
use crate::smr::cmd_queue::Received;
use crate::smr::keys::{Denied, RIGHT_WRITE};
use crate::transfers::incoming::{ENTRY, Pieces};
use crate::transfers::into::{Arrival, Into, Memory};
use crate::transfers::iov::{self, fill_eager};
use crate::transfers::{ACKED, MAX_OPS, Sent, sar, status};

/// Words of the longest payload inside a command.
const WORDS: usize = write_room(false) / 8;

impl Access {
    /// Whether the target has to say that it is done.
    fn is_acked(&self) -> bool {
        self.report.flags.intersects(ACKED.union(OpFlags::FENCE))
    }
}

/// Sends a write that the peer's table allows.
///
/// # Errors
/// Those of [`Peer::reserve`], with the memory.
#[inline]
pub(super) fn write(
    peer: &mut Peer,
    setup: &Setup,
    access: &Access,
    local: Local,
) -> Result<Sent, Refused> {
    let sent = match &local {
        Local::From(buf) => match write_directly(peer, access, buf) {
            Ok(false) => send_small(peer, setup, access, buf),
            done => done.map(|_| Some(Sent::Done)),
        },
        Local::Copy(bytes) => send_bytes(peer, access, bytes),
        Local::To(_) => Err(Errno::Inval),
    };
    match (sent, local) {
        (Ok(Some(sent)), _) => Ok(sent),
        (Ok(None), Local::From(buf)) => offer(peer, setup, access, buf),
        (Ok(None), local) => Err((Errno::MsgSize, local)),
        (Err(errno), local) => Err((errno, local)),
    }
}

/// Writes special memory, and tells the peer if it wants to know. `false` for other memory, and where
/// the order of operations counts.
#[inline]
fn write_directly(peer: &mut Peer, access: &Access, buf: &TxBuf) -> Result<bool> {
    if access.is_fenced() || !peer.has_blocks() {
        return Ok(false);
    }
    peer.reserve_notice(access.data)?;
    let is_done = peer.write_directly(buf, access.places.all());
    if is_done {
        peer.notify(Notice {
            wrote: true,
            data: access.data,
            len: buf.len(),
        });
    }
    Ok(is_done)
}

/// Sends what need not be offered; `None` for the rest.
#[inline]
fn send_small(
    peer: &mut Peer,
    setup: &Setup,
    access: &Access,
    buf: &TxBuf,
) -> Result<Option<Sent>> {
    let (len, data) = (buf.len(), access.data);
    let header = Header {
        places: &access.places,
        data,
    };
    let acked = access.is_acked();
    if !acked && len <= write_room(data.is_some()) && access.places.only().is_some() {
        peer.reserve(0)?;
        send_inside(peer, &access.places.all()[0], data, buf);
        return Ok(Some(Sent::Done));
    }
    if len > setup.config.inject_size {
        return Ok(None);
    }
    inject(peer, access, &header, acked, len, |peer, mut at| {
        for piece in buf.segments(0, len) {
            peer.outbox().store(at, piece);
            at += piece.len();
        }
    })
    .map(Some)
}

/// Sends a copy that was made while the peer was not known.
#[cold]
fn send_bytes(peer: &mut Peer, access: &Access, bytes: &[u8]) -> Result<Option<Sent>> {
    let header = Header {
        places: &access.places,
        data: access.data,
    };
    let acked = access.is_acked();
    inject(peer, access, &header, acked, bytes.len(), |peer, at| {
        peer.outbox().store(at, bytes);
    })
    .map(Some)
}

/// Offers a large write.
fn offer(peer: &mut Peer, setup: &Setup, access: &Access, buf: TxBuf) -> Result<Sent, Refused> {
    if peer.outstanding() >= MAX_OPS {
        return Err((Errno::Again, Local::From(buf)));
    }
    let pieces = Pieces::of(&buf, &setup.shared.special);
    let eager = match pieces.are_special() {
        true => 0,
        false => sar::eager_segments(peer, &setup.config, buf.len()),
    };
    let list = list_len(&access.places);
    let at = match peer.reserve(list + pieces.count * ENTRY) {
        Ok(at) => at,
        Err(errno) => return Err((errno, Local::From(buf))),
    };
    let out = peer.outbox();
    if list > 0 {
        put_list(&access.places, out.payload(), at);
    }
    pieces.put(out.payload(), at + list);
    let msg_id = out.ops.insert(access.op(OpBody::Offered {
        buf,
        filled: 0,
        granted: false,
        special: pieces.are_special(),
    }));
    let header = Header {
        places: &access.places,
        data: access.data,
    };
    header.commit_iov(peer.slot(), at, msg_id, pieces.count, eager);
    fill_eager(peer, msg_id, eager);
    Ok(Sent::Later)
}

/// Begins to take a write that a peer has offered, and whose bytes are expected.
pub(super) fn start(peer: &mut Peer, setup: &Setup, write: &Write, msg_id: u32) {
    let len = write.places.len();
    let into = Into::Memory(Memory {
        domain: Arc::clone(&setup.shared),
        places: write.places,
        arrival: Arrival {
            data: write.data,
            len,
        },
        denied: None,
    });
    let src = peer.fi_addr(&setup.av);
    iov::start(peer, &setup.config, &setup.ep, src, msg_id, into, len);
}

/// Sends a write inside its command, for which there is a slot.
#[inline]
pub(super) fn send_inside(peer: &mut Peer, place: &RmaIov, data: Option<u64>, buf: &TxBuf) {
    if place.len == 8 {
        return Small::commit(place, data, peer.slot(), &[buf.word()]);
    }
    let mut bytes = [[0; 8]; WORDS];
    buf.read(0, bytes.as_flattened_mut());
    let words = bytes.map(u64::from_ne_bytes);
    Small::commit(place, data, peer.slot(), &words[..place.len.div_ceil(8)]);
}

/// Sends a write through the inject pool.
fn inject(
    peer: &mut Peer,
    access: &Access,
    header: &Header<'_>,
    acked: bool,
    len: usize,
    copy: impl FnOnce(&mut Peer, usize),
) -> Result<Sent> {
    if acked && peer.outstanding() >= MAX_OPS {
        return Err(Errno::Again);
    }
    let list = list_len(&access.places);
    let at = peer.reserve(list + len)?;
    if list > 0 {
        put_list(&access.places, peer.outbox().payload(), at);
    }
    copy(peer, at + list);
    let ack = acked.then(|| peer.outbox().ops.insert(access.op(OpBody::Sent)));
    header.commit_inject(peer.slot(), at, ack);
    match acked {
        true => Ok(Sent::Later),
        false => Ok(Sent::Done),
    }
}

/// Puts a write that is inside its command where it belongs.
#[inline]
pub(super) fn put_inline(
    slot: &Received<'_>,
    small: &Small,
    domain: &Shared,
) -> Result<(), Denied> {
    let regions = domain.keys.regions();
    let (place, word) = (&small.place, small.word);
    let target = regions.locate(place, RIGHT_WRITE)?;
    if place.len == 8 {
        target.write(&slot.word(word).to_ne_bytes());
        return Ok(());
    }
    let mut bytes = [[0; 8]; WORDS];
    for (index, bytes) in bytes[..place.len.div_ceil(8)].iter_mut().enumerate() {
        *bytes = slot.word(word + index).to_ne_bytes();
    }
    target.write(&bytes.as_flattened()[..place.len]);
    Ok(())
}

/// Puts a write that lies in the inject pool where it belongs: all of it or nothing.
pub(super) fn put_injected(
    inbox: &Inbox,
    write: &Write,
    mut at: usize,
    domain: &Shared,
) -> Result<(), Denied> {
    let regions = domain.keys.regions();
    check(&regions, write)?;
    for place in write.places.all() {
        inbox.pool.copy_to(at, regions.locate(place, RIGHT_WRITE)?);
        at += place.len;
    }
    Ok(())
}

fn check(regions: &Regions<'_>, write: &Write) -> Result<(), Denied> {
    let mut places = write.places.all().iter();
    places.try_for_each(|place| regions.locate(place, RIGHT_WRITE).map(drop))
}

/// What the writer is told, if it wants to know.
pub(super) fn answer(result: Result<(), Denied>) -> u32 {
    match result {
        Ok(()) => status::DONE,
        Err(denied) => status::failed(denied.errno()),
    }
}
