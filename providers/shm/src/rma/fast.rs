//! The fast path of one-sided operations: what is done before the post returns, or goes inside one
//! command. Its preconditions are those of [`fast_peer`]; everything else is for
//! [`super::initiate`].

use selvedge::rma::RmaIov;
use selvedge::{FiAddr, OpFlags};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};

use super::access::Aim;
use super::cmd::Notice;
use super::cmd::{commit_notice, commit_told, write_room};
use super::write::send_inside;
use crate::endpoint::msg::TX_DEFAULTS;
use crate::endpoint::state::State;
use crate::peers::Peers;
use crate::peers::announce::announce;
use crate::peers::peer::{Peer, State as PeerState};
use crate::provider::setup::Setup;
use crate::smr::keys::{Kind, RIGHT_READ, RIGHT_WRITE};
use crate::smr::prefetch;
use crate::transfers::ACKED;

/// What an operation of the fast path may ask for: all of it is true of one that is done before its
/// post returns.
pub(crate) const FAST: OpFlags = TX_DEFAULTS.union(OpFlags::MORE);
/// The same for a write.
const FAST_WRITE: OpFlags = FAST.union(OpFlags::REMOTE_CQ_DATA);

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
    peers.known(peer).filter(|peer| !peer.is_careful)
}

/// Puts eight bytes into special memory of a peer whose window is known, and sends the peer the data
/// that comes with them. `false`, and nothing has happened, otherwise.
#[inline(always)]
pub(super) fn put_word(
    state: &mut State,
    word: u64,
    dest: FiAddr,
    place: &RmaIov,
    data: Option<u64>,
    report: &Report,
) -> bool {
    let (setup, peers, schedule) = state.outgoing();
    let Some(peer) = fast_peer(setup, peers, dest, report, FAST_WRITE) else {
        return false;
    };
    let Some((span, at)) = peer.windows.find(place, RIGHT_WRITE) else {
        return false;
    };
    if let Some(data) = data {
        if peer.state == PeerState::Linked
            && let Some(out) = &mut peer.out
            && let Some(slot) = out.tx.claim()
            && span.put_word(at, word)
        {
            commit_told(slot, data, 8);
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
    place: &RmaIov,
    report: &Report,
) -> bool {
    let State {
        setup, peers, aim, ..
    } = state;
    let guess = aim.guess(peer, place);
    if let Some(line) = guess {
        prefetch::for_reading(line);
    }
    if let Some(from) = fast_peer(setup, peers, peer, report, FAST)
        && let Some((span, at)) = from.windows.find(place, RIGHT_READ)
        && let Some(word) = span.word(at)
    {
        buf.write_word(word);
        drop(buf);
        if Aim::is_off(guess, span, at) {
            *aim = Aim::at(peer, place, span, at);
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
    pieces: &[RmaIov],
    data: Option<u64>,
    report: &Report,
) -> bool {
    let State { setup, peers, .. } = state;
    let Some(peer) = fast_peer(setup, peers, dest, report, FAST_WRITE) else {
        return false;
    };
    let is_done = peer.has_blocks() && write_special(peer, buf, pieces, data)
        || write_inside(peer, buf, pieces, data, report.flags);
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
    pieces: &[RmaIov],
    report: &Report,
) -> bool {
    let State { setup, peers, .. } = state;
    let peer = fast_peer(setup, peers, src, report, FAST);
    peer.is_some_and(|peer| peer.has_blocks() && peer.read_directly(buf, pieces))
}

/// Writes special memory, and sends the peer the data that comes with it.
#[inline(always)]
fn write_special(peer: &mut Peer, buf: &TxBuf, pieces: &[RmaIov], data: Option<u64>) -> bool {
    if data.is_none() {
        return peer.write_directly(buf, pieces);
    }
    if !peer.is_ready() || peer.reserve(0).is_err() || !peer.write_directly(buf, pieces) {
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

/// Sends a write of a few bytes inside a command.
#[inline]
fn write_inside(
    peer: &mut Peer,
    buf: &TxBuf,
    pieces: &[RmaIov],
    data: Option<u64>,
    flags: OpFlags,
) -> bool {
    let [place] = pieces else { return false };
    let fits = place.len == buf.len() && place.len <= write_room(data.is_some());
    if !fits || flags.intersects(ACKED) || !peer.is_ready() {
        return false;
    }
    let grant = peer.keys.check(place, RIGHT_WRITE);
    let is_allowed = grant.is_ok_and(|grant| grant.row.kind == Kind::Plain);
    if peer.sibling.is_some() || !is_allowed || peer.reserve(0).is_err() {
        return false;
    }
    send_inside(peer, place, data, buf);
    peer.announce();
    true
}
