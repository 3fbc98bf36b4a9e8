//! Write: the bytes go as a command, and the target puts them where its own table says.
//!
//! Inside the command, through the inject pool, or offered like a large message, which the target
//! copies from the writer's memory or has bounced. It checks key, bounds and rights again, for each
//! step of a large one anew.

use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::rma::RmaIov;
use selvedge::{CompletionFlags, Errno, FiAddr, OpFlags, Result};
use selvedge_kit::Ep;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::cq::Sink;

use super::cmd::{Header, Notice, Small, Write, commit_notice, write_room};
use super::places;
use super::{Access, Local, Refused};
use crate::cmd::Nonsense;
use crate::domain::Shared;
use crate::mr::Regions;
use crate::peer::{Inbox, OpBody, Peer};
use crate::proto::into::{Into, Memory};
use crate::proto::iov::{ENTRY, Pieces, expect, fill_eager, start};
use crate::proto::{ACKED, MAX_OPS, Sent, sar, status};
use crate::smr::cmd_queue::Received;
use crate::smr::keys::{Denied, Kind, RIGHT_WRITE};
use crate::state::State;

/// Words of the longest payload inside a command.
const WORDS: usize = write_room(false) / 8;

/// What is to be said of a write once its bytes are there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) data: Option<u64>,
    pub(crate) len: usize,
}

impl Arrival {
    /// Counts it, and reports it if it came with data.
    #[inline]
    pub(crate) fn report(self, ep: &Ep, src: FiAddr, sink: &mut Sink<'_>) {
        ep.peer_wrote(self.len);
        let Some(data) = self.data else { return };
        let entry = Entry {
            flags: CompletionFlags::RMA
                | CompletionFlags::REMOTE_WRITE
                | CompletionFlags::REMOTE_CQ_DATA,
            len: self.len,
            data,
            ..Entry::default()
        };
        sink.push(&ep.rx_cq, entry, src);
    }
}

impl Access {
    /// Whether the target has to say that it is done.
    fn is_acked(&self) -> bool {
        self.report.flags.intersects(ACKED.union(OpFlags::FENCE))
    }
}

impl State {
    /// Sends a write that the peer's table allows.
    #[inline]
    pub(super) fn write(
        &mut self,
        index: usize,
        access: &Access,
        local: Local,
    ) -> Result<Sent, Refused> {
        let sent = match &local {
            Local::From(buf) => match self.write_here(index, access, buf) {
                Ok(false) => self.send_small(index, access, buf),
                done => done.map(|_| Some(Sent::Done)),
            },
            Local::Copy(bytes) => self.send_bytes(index, access, bytes),
            Local::To(_) => Err(Errno::Inval),
        };
        match (sent, local) {
            (Ok(Some(sent)), _) => Ok(sent),
            (Ok(None), Local::From(buf)) => self.offer(index, access, buf),
            (Ok(None), local) => Err((Errno::MsgSize, local)),
            (Err(Errno::Proto), local) => {
                self.quarantine(index, "credit for commands that were never sent");
                Err((Errno::NotConn, local))
            }
            (Err(errno), local) => Err((errno, local)),
        }
    }

    /// Sends a write of a few bytes if there is nothing else to do: the most frequent one. Says
    /// whether it was sent; [`State::access`] knows why not.
    #[inline]
    pub(super) fn write_inside(
        &mut self,
        index: usize,
        buf: &TxBuf,
        pieces: &[RmaIov],
        data: Option<u64>,
        flags: OpFlags,
    ) -> bool {
        let [place] = pieces else { return false };
        let fits = place.len == buf.len() && place.len <= write_room(data.is_some());
        if !fits || flags.intersects(ACKED.union(OpFlags::FENCE)) || !self.is_ready(index) {
            return false;
        }
        let peer = &mut self.peers[index];
        let grant = peer.keys.check(place, RIGHT_WRITE);
        let is_allowed = grant.is_ok_and(|grant| grant.row.kind == Kind::Plain);
        if peer.is_careful || peer.sibling.is_some() || !is_allowed || peer.reserve(0).is_err() {
            return false;
        }
        send_inside(peer, place, data, buf);
        peer.announce();
        true
    }

    /// Writes special memory and sends the peer the data that comes with it, if nothing else is to
    /// be done; otherwise nothing has happened, and [`State::access`] knows why.
    #[inline]
    pub(super) fn write_and_tell(
        &mut self,
        index: usize,
        buf: &TxBuf,
        pieces: &[RmaIov],
        data: Option<u64>,
        flags: OpFlags,
    ) -> bool {
        if data.is_none() || flags.contains(OpFlags::FENCE) || !self.is_ready(index) {
            return false;
        }
        let peer = &mut self.peers[index];
        if peer.is_careful || !peer.has_blocks() || peer.reserve(0).is_err() {
            return false;
        }
        if !peer.write_directly(buf, pieces) {
            return false;
        }
        let len = buf.len();
        let notice = Notice {
            wrote: true,
            data,
            len,
        };
        commit_notice(peer.slot(), notice);
        peer.announce();
        true
    }

    /// Writes special memory, and tells the peer if it wants to know. `false` for other memory, and
    /// where the order of operations counts.
    #[inline]
    fn write_here(&mut self, index: usize, access: &Access, buf: &TxBuf) -> Result<bool> {
        let peer = &mut self.peers[index];
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
    fn send_small(&mut self, index: usize, access: &Access, buf: &TxBuf) -> Result<Option<Sent>> {
        let (len, data) = (buf.len(), access.data);
        let peer = &mut self.peers[index];
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
        if len > self.config.inject_size {
            return Ok(None);
        }
        inject(peer, access, &header, acked, len, |peer, mut at| {
            for piece in buf.pieces(0, len) {
                peer.outbox().store(at, piece);
                at += piece.len();
            }
        })
        .map(Some)
    }

    /// Sends a copy that was made while the peer was not known.
    #[cold]
    fn send_bytes(&mut self, index: usize, access: &Access, bytes: &[u8]) -> Result<Option<Sent>> {
        let header = Header {
            places: &access.places,
            data: access.data,
        };
        let acked = access.is_acked();
        let peer = &mut self.peers[index];
        inject(peer, access, &header, acked, bytes.len(), |peer, at| {
            peer.outbox().store(at, bytes);
        })
        .map(Some)
    }

    /// Offers a large write.
    fn offer(&mut self, index: usize, access: &Access, buf: TxBuf) -> Result<Sent, Refused> {
        let peer = &mut self.peers[index];
        if peer.outstanding() >= MAX_OPS {
            return Err((Errno::Again, Local::From(buf)));
        }
        let pieces = Pieces::of(&buf, &self.shared.special);
        let eager = match pieces.are_special() {
            true => 0,
            false => sar::eager_segments(peer, &self.config, buf.len()),
        };
        let list = places::list_len(&access.places);
        let at = match peer.reserve(list + pieces.count * ENTRY) {
            Ok(at) => at,
            Err(errno) => return Err((errno, Local::From(buf))),
        };
        let out = peer.outbox();
        if list > 0 {
            places::put(&access.places, out.payload(), at);
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

    /// Takes a write that a peer offers.
    pub(super) fn take_offer(
        &mut self,
        index: usize,
        write: &Write,
        msg_id: u32,
        eager: u32,
        pieces: Pieces,
    ) -> Result<(), Nonsense> {
        let peer = &mut self.peers[index];
        expect(peer, msg_id, eager, pieces)?;
        let len = write.places.len();
        let into = Into::Memory(Memory {
            domain: Arc::clone(&self.shared),
            places: write.places,
            arrival: Arrival {
                data: write.data,
                len,
            },
            denied: None,
        });
        self.activate(index);
        let peer = &mut self.peers[index];
        let src = peer.fi_addr(&self.av);
        start(peer, &self.config, &self.ep, src, msg_id, into, len);
        Ok(())
    }
}

/// Sends a write inside its command, for which there is a slot.
#[inline]
fn send_inside(peer: &mut Peer, place: &RmaIov, data: Option<u64>, buf: &TxBuf) {
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
    let list = places::list_len(&access.places);
    let at = peer.reserve(list + len)?;
    if list > 0 {
        places::put(&access.places, peer.outbox().payload(), at);
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
