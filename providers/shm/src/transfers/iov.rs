//! Iov protocol: the sender names its memory, and the receiver copies from it or requests bounce
//! segments.
//!
//! The sender sends an RTS ([`send`]). When the message has matched a receive, the receiver selects
//! the protocol ([`start`]). It responds when it has the bytes. It copies in steps, so that a large
//! message does not delay small ones.
//!
//! If the sender's memory is special ([`crate::memory::special`]) and the receiver has mapped it,
//! the receiver copies from its mapping, without a system call. This works where cross-memory
//! attach is denied, too.

use selvedge::{Errno, FiAddr, OpFlags, Result};
use selvedge_kit::copy::TxBuf;
use selvedge_kit::telemetry::EventKind;
use selvedge_kit::{Ep, Report};

use super::destination::{Destination, DestinationSlice};
use super::incoming::{ENTRY_LEN, Moving, SourceSegment, SourceSegments, Stage};
use super::transfer::{end_transfer, finish, register_incoming};
use super::{MAX_OPS, inject, sar, status};
use crate::connect::connection::PACKETS_MAX;
use crate::matching::lent::handover;
use crate::memory::special::PeerBlocks;
use crate::peers::ops::{Op, OpBody};
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::provider::config::{Config, Protocol};
use crate::provider::shared::Shared;
use crate::transfers::cma::CmaProcess;
use crate::transfers::cmd::{Header, IOV_LIMIT, ProtocolError, Rts};
use crate::transfers::protocol_selector::{MessageClass, RendezvousProtocol};

/// The maximum number of bytes that one step copies.
const COPY_STEP: usize = 1 << 20;
/// The number of bytes whose copy takes about as long as a small message.
const BYTES_PER_WORK_UNIT: usize = 4096;

/// Sends the RTS of a message.
///
/// # Errors
/// As [`Peer::reserve`]; [`Errno::Again`] while too many operations are outstanding, or too many
/// messages are lent to the peer.
pub(crate) fn send(
    peer: &mut Peer,
    config: &Config,
    shared: &Shared,
    header: &Header,
    buf: TxBuf,
    mut op: Op,
) -> Result {
    let is_lent = op.report.flags.contains(OpFlags::LEND);
    if peer.outstanding() >= MAX_OPS || is_lent && !has_room_to_lend(peer, config) {
        return Err(Errno::Again);
    }
    let (len, segments) = (buf.len(), SourceSegments::from_buf(&buf, shared));
    let addr_or_offset = segments.publish(peer)?;
    let out = peer.outbox();
    let (class, eager) = sar::classify(out, config, &segments, len);
    op.body = OpBody::Rts {
        buf,
        filled: 0,
        bounced: false,
        special: segments.are_special(),
        is_lent,
        class,
    };
    let msg_id = out.ops.insert(op);
    let rts = Rts {
        msg_id,
        count: segments.count as u32,
        addr_or_offset,
        eager,
        block: segments.list[0].block,
        is_lent,
    };
    header.commit_iov(peer.slot(), len, rts);
    fill_eager(peer, msg_id, eager);
    Ok(())
}

/// Whether one more message may be lent to the peer.
pub(crate) fn has_room_to_lend(peer: &Peer, config: &Config) -> bool {
    peer.outstanding() < MAX_OPS && peer.lent() < config.lent_max
}

/// Commits the RTS of a lent message in the slot that the caller has reserved. `segment` describes
/// the bytes of `buf`.
pub(crate) fn commit_lent(
    peer: &mut Peer,
    header: &Header,
    report: Report,
    buf: TxBuf,
    segment: SourceSegment,
) {
    let len = report.len;
    let body = OpBody::Rts {
        buf,
        filled: 0,
        bounced: false,
        special: true,
        is_lent: true,
        class: MessageClass::of(len, false),
    };
    let rts = Rts {
        msg_id: peer.outbox().ops.insert(Op { report, body }),
        count: 1,
        addr_or_offset: segment.addr,
        eager: 0,
        block: segment.block,
        is_lent: true,
    };
    header.commit_iov(peer.slot(), len, rts);
}

/// Fills the eager bounce segments of a message.
pub(crate) fn fill_eager(peer: &mut Peer, msg_id: u32, eager: u32) {
    for _ in 0..eager {
        // A send reads private memory, which is never denied.
        let _ = sar::fill_segment(peer.outbox(), msg_id);
    }
}

impl SourceSegments {
    /// Reserves a command slot, and stores a list of several segments in the inject pool. Returns
    /// the only segment's address, or the list's offset.
    fn publish(&self, peer: &mut Peer) -> Result<u64> {
        if self.count == 1 {
            peer.reserve(0)?;
            return Ok(self.list[0].addr);
        }
        let addr_or_offset = peer.reserve(self.count * ENTRY_LEN)?;
        self.put(peer.outbox().payload(), addr_or_offset);
        Ok(addr_or_offset as u64)
    }

    /// Reads the segments of an RTS. Several segments are in a list in the inject pool.
    fn read(rts: &Rts, len: usize, inbox: &mut Inbox) -> Result<Self, ProtocolError> {
        let count = rts.count as usize;
        let mut list = [SourceSegment::default(); IOV_LIMIT];
        if count == 1 {
            list[0] = SourceSegment {
                addr: rts.addr_or_offset,
                len: len as u64,
                block: rts.block,
            };
            let is_lent = rts.is_lent;
            return Ok(Self {
                count,
                list,
                is_lent,
            });
        }
        let offset = inject::locate(inbox, rts.addr_or_offset, count * ENTRY_LEN)?;
        Self::get(&inbox.pool, offset, count, len)
    }
}

/// Registers the message of an RTS until it is received.
///
/// # Errors
/// [`ProtocolError`] when the RTS is invalid.
pub(crate) fn accept_rts(peer: &mut Peer, rts: &Rts, len: usize) -> Result<(), ProtocolError> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(());
    };
    let segments = SourceSegments::read(rts, len, inbox)?;
    register_incoming(peer, rts.msg_id, rts.eager, segments)
}

/// Starts to receive a matched message: selects its protocol and copies the first step.
pub(crate) fn start(
    peer: &mut Peer,
    config: &Config,
    ep: &Ep,
    src: FiAddr,
    msg_id: u32,
    destination: Destination,
    len: usize,
) {
    let Some(incoming) = peer.incoming.get_mut(&msg_id) else {
        return destination.fail(
            ep,
            Errno::ConnReset,
            src,
            "the sender has disconnected".into(),
        );
    };
    let (protocol, measurement) = match (config.protocol, peer.cma) {
        _ if incoming.segments.are_special() => (RendezvousProtocol::Special, None),
        (Protocol::Bounce, _) | (_, None) => (RendezvousProtocol::Bounce, None),
        (Protocol::Cma, _) => (RendezvousProtocol::Cma, None),
        (Protocol::Auto, _) => {
            let class = MessageClass::of(len, incoming.is_recent);
            let (protocol, measurement) = peer.protocol_selector.start(class, &peer.name);
            (protocol, Some(measurement))
        }
    };
    if protocol == RendezvousProtocol::Special && !incoming.segments.are_mapped(&peer.blocks) {
        // The message has overtaken the announcement of the block, which is still in the socket.
        peer.packets_ahead = PACKETS_MAX;
    }
    let moving = Moving {
        destination,
        len,
        protocol,
        done: 0,
        measurement,
    };
    incoming.stage = Stage::Moving(moving);
    match protocol {
        _ if protocol != RendezvousProtocol::Bounce && peer.packets_ahead > 0 => {}
        RendezvousProtocol::Cma | RendezvousProtocol::Special => {
            copy_step(peer, ep, src, msg_id);
        }
        RendezvousProtocol::Bounce => request_bounce(peer, ep, src, msg_id),
    }
}

/// Requests the message in bounce segments, and copies those that have arrived.
fn request_bounce(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) {
    peer.respond(peer.incarnation, msg_id, status::BOUNCE);
    sar::copy_kept_segments(peer, ep, src, msg_id);
}

/// The memory that the receiver copies from.
enum CopySource<'a> {
    /// The memory of the sender's process.
    Process(CmaProcess),
    /// The blocks of the sender that this process has mapped.
    Blocks(&'a PeerBlocks),
}

/// Copies the next step of a message from the sender's memory. Returns the work done, in units of
/// about one small message; 0 if the message is not copied from there.
///
/// A lent message is handed over instead, if the receive accepts it.
pub(crate) fn copy_step(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) -> usize {
    match handover::hand_over(peer, ep, src, msg_id) {
        Ok(false) => {}
        Ok(true) => return 1,
        Err(fault) => {
            peer.fault = Some(fault);
            return 0;
        }
    }
    let Some(incoming) = peer.incoming.get_mut(&msg_id) else {
        return 0;
    };
    let Stage::Moving(moving) = &mut incoming.stage else {
        return 0;
    };
    let from = match (moving.protocol, peer.cma) {
        (RendezvousProtocol::Special, _) => CopySource::Blocks(&peer.blocks),
        (RendezvousProtocol::Cma, Some(process)) => CopySource::Process(process),
        _ => return 0,
    };
    let (segments, before) = (incoming.segments, moving.done);
    let result = pull(&from, &segments, moving);
    let work = 1 + (moving.done - before) / BYTES_PER_WORK_UNIT;
    match result {
        Ok(()) if moving.done < moving.destination.accepted_len(moving.len) => {}
        Ok(()) => finish_pull(peer, ep, src, msg_id),
        // A block that this process has not mapped is copied like other memory.
        Err(Errno::Fault)
            if moving.protocol == RendezvousProtocol::Special && peer.cma.is_some() =>
        {
            moving.protocol = RendezvousProtocol::Cma;
            moving.done = 0;
        }
        // The sender can read its memory even if the kernel cannot, for instance that of a device.
        Err(Errno::Fault) => {
            moving.protocol = RendezvousProtocol::Bounce;
            moving.done = 0;
            moving.measurement = None;
            request_bounce(peer, ep, src, msg_id);
        }
        Err(errno) => fall_back_to_bounce(peer, ep, src, errno),
    }
    work
}

/// Copies up to [`COPY_STEP`] bytes of a message.
fn pull(from: &CopySource<'_>, segments: &SourceSegments, moving: &mut Moving) -> Result {
    let len = (moving.len - moving.done).min(COPY_STEP);
    let mut handled = moving.done;
    let result = moving
        .destination
        .for_each_slice(moving.done, len, &mut |mut to| {
            let mut offset = 0;
            while offset < to.len() {
                let segment = segments.segment_from(handled as u64).ok_or(Errno::Fault)?;
                let remaining = to.len() - offset;
                let len = usize::try_from(segment.len).map_or(remaining, |len| len.min(remaining));
                from.read(&segment, to.part(offset, len))?;
                offset += len;
                handled += len;
            }
            Ok(())
        });
    moving.done = match moving.destination.denial() {
        Some(_) => moving.len,
        None => handled,
    };
    result
}

impl CopySource<'_> {
    /// Fills `to` with the first bytes of a segment. The segment is at least as long as `to`.
    fn read(&self, segment: &SourceSegment, to: DestinationSlice<'_>) -> Result {
        match (self, to) {
            (Self::Process(process), DestinationSlice::Private(to)) => {
                process.read(segment.addr, to)
            }
            (Self::Process(process), DestinationSlice::Shared(to)) => {
                process.read_shared(segment.addr, to)
            }
            (Self::Blocks(blocks), to) => {
                let (bytes, offset) = blocks
                    .find_source(segment.block, segment.addr, to.len() as u64)
                    .ok_or(Errno::Fault)?;
                to.copy_from(bytes, offset);
                Ok(())
            }
        }
    }
}

/// Finishes a message after its last byte is copied. The copy is valid if the sender had not closed
/// the region by then.
fn finish_pull(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32) {
    let is_closed = peer.inbox.as_ref().is_none_or(|i| i.region.is_closed());
    if is_closed {
        return fail_pull(peer, ep, src, msg_id, Errno::ConnReset);
    }
    let Some(moving) = end_transfer(peer, msg_id) else {
        return;
    };
    finish(peer, ep, src, msg_id, moving, status::DONE);
}

/// Receives all messages of the peer in bounce segments from now on, because cross-memory attach to
/// the peer has failed.
#[cold]
fn fall_back_to_bounce(peer: &mut Peer, ep: &Ep, src: FiAddr, errno: Errno) {
    log::info!(
        target: "selvedge::shm::ep_data",
        "cross-memory attach to {} failed: its large messages are bounced from now on", peer.name
    );
    ep.stats
        .record_event(EventKind::NoCma, peer.name.as_str(), errno.as_raw() as u64);
    peer.cma = None;
    let mut bounced = Vec::new();
    for (&id, incoming) in &mut peer.incoming {
        if let Stage::Moving(moving) = &mut incoming.stage
            && moving.protocol == RendezvousProtocol::Cma
        {
            moving.protocol = RendezvousProtocol::Bounce;
            moving.done = 0;
            moving.measurement = None;
            bounced.push(id);
        }
    }
    for id in bounced {
        request_bounce(peer, ep, src, id);
    }
}

/// Fails a message whose bytes cannot be read, locally and at the sender.
fn fail_pull(peer: &mut Peer, ep: &Ep, src: FiAddr, msg_id: u32, errno: Errno) {
    let Some(moving) = end_transfer(peer, msg_id) else {
        return;
    };
    peer.respond(peer.incarnation, msg_id, status::failed(errno));
    let detail = format!("the bytes of {}'s message could not be read", peer.name);
    moving.destination.fail(ep, errno, src, detail);
}
