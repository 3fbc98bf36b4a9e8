//! The fast path of one-sided operations: accesses to mapped special memory, which are complete
//! when the post returns, and writes inside one command. [`fast_peer`] checks the preconditions;
//! [`super::initiate`] handles every other operation.

use selvedge::rma::RmaIov;
use selvedge::{FiAddr, OpFlags};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::cmd::Notification;
use super::cmd::{commit_notification, commit_write_notification, inline_write_max};
use super::remote_memory::PrefetchHint;
use super::write::send_inline;
use crate::endpoint::msg::TX_DEFAULTS;
use crate::endpoint::state::State;
use crate::peers::Peers;
use crate::peers::announce::announce;
use crate::peers::peer::{Peer, State as PeerState};
use crate::provider::setup::Setup;
use crate::smr::keys::{Kind, RIGHT_READ, RIGHT_WRITE};
use crate::smr::prefetch;
use crate::transfers::ACK_FLAGS;

/// Flags that the fast path accepts: an operation that is complete when its post returns satisfies
/// all of them.
pub(crate) const FAST_FLAGS: OpFlags = TX_DEFAULTS.union(OpFlags::MORE);
/// Flags that the fast path accepts for a write.
const FAST_WRITE_FLAGS: OpFlags = FAST_FLAGS.union(OpFlags::REMOTE_CQ_DATA);

/// Returns the peer if an operation may use the fast path: the operation has no flags beyond
/// `allowed`, the completion queue has room, the peer's index is cached, and the peer does not need
/// the slow path.
#[inline(always)]
pub(crate) fn fast_peer<'a>(
    setup: &Setup,
    peers: &'a mut Peers,
    peer: FiAddr,
    report: &Report,
    allowed: OpFlags,
) -> Option<&'a mut Peer> {
    let has_room = !report.reports_success || setup.ep.tx_cq.room() > 0;
    if !has_room || !allowed.contains(report.flags) {
        return None;
    }
    peers.cached(peer).filter(|peer| !peer.needs_slow_path)
}

/// Stores eight bytes in cached special memory of a peer, and sends the peer the remote data of the
/// write. Returns `false` without effect if a precondition does not hold.
#[inline(always)]
pub(super) fn put_word(
    state: &mut State,
    word: u64,
    dest: FiAddr,
    segment: &RmaIov,
    data: Option<u64>,
    report: &Report,
) -> bool {
    let (setup, peers, schedule) = state.split_for_send();
    let Some(peer) = fast_peer(setup, peers, dest, report, FAST_WRITE_FLAGS) else {
        return false;
    };
    let Some((span, offset)) = peer.mapped_regions.find(segment, RIGHT_WRITE) else {
        return false;
    };
    if let Some(data) = data {
        if peer.state == PeerState::Connected
            && let Some(out) = &mut peer.out
            && let Some(slot) = out.tx.claim()
            && span.put_word(offset, word)
        {
            commit_write_notification(slot, data, 8);
            out.mark_last();
            announce(peer, report.flags, schedule, &setup.ep);
        } else {
            return false;
        }
    } else if !span.put_word(offset, word) {
        return false;
    }
    report.done_not_deferred(&setup.ep);
    true
}

/// Loads eight bytes from cached special memory of a peer. Returns `false` without effect if a
/// precondition does not hold.
#[inline(always)]
pub(super) fn get_word(
    state: &mut State,
    mut buf: RxBuf,
    peer: FiAddr,
    segment: &RmaIov,
    report: &Report,
) -> bool {
    let State {
        setup,
        peers,
        prefetch_hint,
        ..
    } = state;
    let guess = prefetch_hint.guess(peer, segment);
    if let Some(line) = guess {
        prefetch::for_reading(line);
    }
    if let Some(source) = fast_peer(setup, peers, peer, report, FAST_FLAGS)
        && let Some((span, offset)) = source.mapped_regions.find(segment, RIGHT_READ)
        && let Some(word) = span.word(offset)
    {
        buf.write_word(word);
        drop(buf);
        if PrefetchHint::is_wrong(guess, span, offset) {
            *prefetch_hint = PrefetchHint::of_segment(peer, segment, span, offset);
        }
        report.done_not_deferred(&setup.ep);
        return true;
    }
    false
}

/// Writes special memory, or sends an inline write. Returns `false` without effect if a
/// precondition does not hold.
#[inline(always)]
pub(super) fn write(
    state: &mut State,
    buf: &TxBuf,
    dest: FiAddr,
    rma_iov: &[RmaIov],
    data: Option<u64>,
    report: &Report,
) -> bool {
    let State { setup, peers, .. } = state;
    let Some(peer) = fast_peer(setup, peers, dest, report, FAST_WRITE_FLAGS) else {
        return false;
    };
    let is_done = peer.has_mapped_blocks() && write_special(peer, buf, rma_iov, data)
        || write_inline(peer, buf, rma_iov, data, report.flags);
    if is_done {
        report.done_not_deferred(&setup.ep);
    }
    is_done
}

/// Reads special memory. Returns `false` without effect if a precondition does not hold.
#[inline(always)]
pub(super) fn read(
    state: &mut State,
    buf: &mut RxBuf,
    src: FiAddr,
    rma_iov: &[RmaIov],
    report: &Report,
) -> bool {
    let State { setup, peers, .. } = state;
    let peer = fast_peer(setup, peers, src, report, FAST_FLAGS);
    peer.is_some_and(|peer| peer.has_mapped_blocks() && peer.read_directly(buf, rma_iov))
}

/// Writes special memory, and sends the peer the remote data of the write.
#[inline(always)]
fn write_special(peer: &mut Peer, buf: &TxBuf, rma_iov: &[RmaIov], data: Option<u64>) -> bool {
    if data.is_none() {
        return peer.write_directly(buf, rma_iov);
    }
    if !peer.is_ready() || peer.reserve(0).is_err() || !peer.write_directly(buf, rma_iov) {
        return false;
    }
    let len = buf.len();
    let notification = Notification {
        is_write: true,
        data,
        len,
    };
    commit_notification(peer.slot(), notification);
    peer.announce();
    true
}

/// Sends a write of a few bytes as an inline command.
#[inline]
fn write_inline(
    peer: &mut Peer,
    buf: &TxBuf,
    rma_iov: &[RmaIov],
    data: Option<u64>,
    flags: OpFlags,
) -> bool {
    let [segment] = rma_iov else { return false };
    let fits = segment.len == buf.len() && segment.len <= inline_write_max(data.is_some());
    if !fits || flags.intersects(ACK_FLAGS) || !peer.is_ready() {
        return false;
    }
    let grant = peer.keys.check(segment, RIGHT_WRITE);
    let is_allowed = grant.is_ok_and(|grant| grant.entry.kind == Kind::Plain);
    if peer.sibling.is_some() || !is_allowed || peer.reserve(0).is_err() {
        return false;
    }
    send_inline(peer, segment, data, buf);
    peer.announce();
    true
}
