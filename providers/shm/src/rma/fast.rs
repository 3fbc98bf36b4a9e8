//! The fast path of one-sided operations: what is done before the post returns, or goes inside one
//! command. Its preconditions are those of [`fast_peer`]; everything else is for
//! [`super::initiate`].

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

/// What an operation of the fast path may ask for: all of it is true of one that is done before its
/// post returns.
pub(crate) const FAST_FLAGS: OpFlags = TX_DEFAULTS.union(OpFlags::MORE);
/// The same for a write.
const FAST_WRITE_FLAGS: OpFlags = FAST_FLAGS.union(OpFlags::REMOTE_CQ_DATA);

/// A peer whose memory may be used at once by an operation that asks for no more than `allowed`: its
/// completion has room, and nothing has to be found out before.
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

/// Puts eight bytes into special memory of a peer whose window is known, and sends the peer the data
/// that comes with them. `false`, and nothing has happened, otherwise.
#[inline(always)]
pub(super) fn put_word(
    state: &mut State,
    word: u64,
    dest: FiAddr,
    segment: &RmaIov,
    data: Option<u64>,
    report: &Report,
) -> bool {
    let (setup, peers, schedule) = state.outgoing();
    let Some(peer) = fast_peer(setup, peers, dest, report, FAST_WRITE_FLAGS) else {
        return false;
    };
    let Some((span, at)) = peer.mapped_regions.find(segment, RIGHT_WRITE) else {
        return false;
    };
    if let Some(data) = data {
        if peer.state == PeerState::Connected
            && let Some(out) = &mut peer.out
            && let Some(slot) = out.tx.claim()
            && span.put_word(at, word)
        {
            commit_write_notification(slot, data, 8);
            out.mark_last();
            announce(peer, report.flags, schedule, &setup.ep);
        } else {
            return false;
        }
    } else if !span.put_word(at, word) {
        return false;
    }
    report.done_not_deferred(&setup.ep);
    true
}

/// Gets eight bytes out of special memory of a peer, likewise.
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
    if let Some(from) = fast_peer(setup, peers, peer, report, FAST_FLAGS)
        && let Some((span, at)) = from.mapped_regions.find(segment, RIGHT_READ)
        && let Some(word) = span.word(at)
    {
        buf.write_word(word);
        drop(buf);
        if PrefetchHint::is_wrong(guess, span, at) {
            *prefetch_hint = PrefetchHint::at(peer, segment, span, at);
        }
        report.done_not_deferred(&setup.ep);
        return true;
    }
    false
}

/// Writes to special memory, or inside a command. `false`, and nothing has happened, otherwise.
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

/// Reads from special memory, likewise.
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

/// Writes special memory, and sends the peer the data that comes with it.
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
        wrote: true,
        data,
        len,
    };
    commit_notification(peer.slot(), notification);
    peer.announce();
    true
}

/// Sends a write of a few bytes inside a command.
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
    let is_allowed = grant.is_ok_and(|grant| grant.row.kind == Kind::Plain);
    if peer.sibling.is_some() || !is_allowed || peer.reserve(0).is_err() {
        return false;
    }
    send_inline(peer, segment, data, buf);
    peer.announce();
    true
}
