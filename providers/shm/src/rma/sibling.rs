//! Operations on siblings: the endpoints of the initiator's domain, whose regions are in the
//! domain's own key table.
//!
//! The post executes a one-sided operation on a sibling, or on the initiating endpoint itself. The
//! operation is complete when the post returns, without progress of the target endpoint. The target
//! endpoint receives a notification if it counts such operations or if the operation carries remote
//! data.

use selvedge::rma::RmaIov;
use selvedge::shared::SharedBytes;
use selvedge::{Errno, FiAddr, OpFlags, Result};
use selvedge_kit::copy::RxBuf;

use super::cmd::Notification;
use super::{LocalBuffer, RmaOp, denial_text};
use crate::peers::peer::Peer;
use crate::provider::setup::Setup;
use crate::provider::shared::Shared;
use crate::smr::keys::Denied;

/// Whether the post may execute an operation: the peer is an open endpoint of this domain, no
/// earlier command has to precede the operation, and there is room for the notification if one is
/// needed.
///
/// # Errors
/// [`Errno::Again`] while there is no room for the notification.
pub(crate) fn may_access(peer: &mut Peer, data: Option<u64>, flags: OpFlags) -> Result<bool> {
    let Some(sibling) = peer.sibling.as_deref().filter(|sibling| sibling.is_open()) else {
        return Ok(false);
    };
    // A fenced operation follows every earlier command.
    if flags.contains(OpFlags::FENCE) {
        return Ok(false);
    }
    if !sibling.counts_peers() && data.is_none() {
        return Ok(true);
    }
    if !peer.is_ready() {
        return Ok(false);
    }
    match peer.reserve_notification(data) {
        Ok(()) => Ok(true),
        Err(Errno::Again) => Err(Errno::Again),
        // The general path disconnects a peer whose queue is invalid.
        Err(_) => Ok(false),
    }
}

/// Reads or writes a sibling's memory, and reports the operation. [`may_access`] must have returned
/// `true`.
pub(super) fn execute(peer: &mut Peer, setup: &Setup, op: &RmaOp, local: LocalBuffer) {
    let (keys, segments) = (&setup.shared.keys, op.segments.all());
    let is_write = !op.is_read();
    match copy(&setup.shared, op, local) {
        Ok(()) => {
            keys.count_segments(segments, op.access());
            notify(peer, is_write, op.data, op.segments.len());
            op.report.done(&setup.ep);
        }
        Err((segment, denied)) => {
            let detail = denial_text(peer.name.as_str(), &segment, denied);
            let report = &op.report;
            report.failed(&setup.ep, denied.errno(), FiAddr::UNSPEC, detail);
        }
    }
}

/// Notifies a sibling of an operation on its memory, if the sibling requests notifications or the
/// operation carries remote data.
pub(crate) fn notify(peer: &mut Peer, is_write: bool, data: Option<u64>, len: usize) {
    if peer.wants_notifications || data.is_some() {
        peer.notify(Notification {
            is_write,
            data,
            len,
        });
        peer.announce();
    }
}

/// Copies between the caller's buffer and all segments: all bytes, or none.
fn copy(domain: &Shared, op: &RmaOp, local: LocalBuffer) -> Result<(), (RmaIov, Denied)> {
    let regions = domain.keys.regions();
    let rights = op.access();
    for segment in op.segments.all() {
        regions
            .allow(segment, rights)
            .map_err(|denied| (*segment, denied))?;
    }
    let mut local = local;
    let mut copied = 0;
    for segment in op.segments.all() {
        let memory = regions.locate(segment, rights);
        let memory = memory.map_err(|denied| (*segment, denied))?;
        match &mut local {
            LocalBuffer::Source(buf) => {
                let mut offset = 0;
                for slice in buf.segments(copied, segment.len) {
                    memory.part(offset, slice.len()).write(slice);
                    offset += slice.len();
                }
            }
            LocalBuffer::SourceCopy(bytes) => memory.write(&bytes[copied..copied + segment.len]),
            LocalBuffer::Destination(buf) => read(memory, buf, copied),
        }
        copied += segment.len;
    }
    Ok(())
}

/// Fills a buffer from `copied` on with registered memory.
fn read(memory: SharedBytes, buf: &mut RxBuf, copied: usize) {
    let mut offset = 0;
    for slice in buf.segments(copied, memory.len()) {
        memory.part(offset, slice.len()).read(slice);
        offset += slice.len();
    }
}
