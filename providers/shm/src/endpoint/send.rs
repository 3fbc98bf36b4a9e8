//! Sending messages: the fast path and the general path.

use selvedge::{Context, Errno, FiAddr, OpFlags, Result};
use selvedge_kit::Report;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::telemetry::ProtocolCounter;

use crate::endpoint::state::State;
use crate::peers::Peers;
use crate::peers::announce::announce;
use crate::peers::peer::{Peer, State as PeerState};
use crate::progress::schedule::Schedule;
use crate::provider::setup::Setup;
use crate::rma::initiate::{check_deferred, poll_peer};
use crate::transfers::cmd::Header;
use crate::transfers::send::{self, SLOW_PATH_FLAGS, is_inline};
use crate::transfers::{Sent, inject, inline};

/// The parameters that sends of all kinds have in common.
#[derive(Debug)]
pub(crate) struct SendParams {
    pub(crate) header: Header,
    pub(crate) dest: FiAddr,
    pub(crate) context: Context,
    pub(crate) flags: OpFlags,
    /// Whether success is reported. fi_inject(3) reports none.
    pub(crate) reports_success: bool,
}

impl SendParams {
    /// Builds the report of a message of `len` bytes.
    #[inline(always)]
    pub(crate) fn report(&self, len: usize) -> Report {
        Report {
            kind: self.header.kind.sent(),
            context: self.context,
            flags: self.flags,
            reports_success: self.reports_success,
            len,
        }
    }
}

/// Sends eight bytes by the fast path. Returns `false` without effect if a precondition does not
/// hold; the caller then calls [`send()`]. This function and its callees are inlined.
#[inline(always)]
pub(crate) fn send_word(state: &mut State, word: u64, params: &SendParams) -> bool {
    let (setup, peers, schedule) = state.split_for_send();
    if is_inline(&setup.config, &params.header, 8, params.flags)
        && let Some(peer) = fast_peer(setup, peers, params)
        && let Some(out) = &mut peer.out
        && let Some(slot) = out.tx.claim()
    {
        params
            .header
            .commit_inline(slot, 8, |slot, index| slot.put(index, word));
        out.mark_last();
        complete_fast_send(setup, peer, schedule, params, 8);
        return true;
    }
    false
}

/// Sends a message.
///
/// # Errors
/// As [`send::send`]; [`Errno::NotConn`] for a peer that is disconnected and was not restarted.
#[inline(never)]
pub(crate) fn send(state: &mut State, buf: TxBuf, params: &SendParams) -> Result {
    let len = buf.len();
    let (setup, peers, schedule) = state.split_for_send();
    if len <= setup.config.inject_size
        && !params.flags.intersects(SLOW_PATH_FLAGS)
        && let Some(peer) = fast_peer(setup, peers, params)
    {
        let is_inline = is_inline(&setup.config, &params.header, len, params.flags);
        let is_committed = if is_inline {
            commit_inline(peer, &params.header, &buf)
        } else {
            inject::send(peer, &params.header, &buf, None).is_ok()
        };
        if is_committed {
            if !is_inline {
                setup
                    .ep
                    .stats
                    .count_protocol(ProtocolCounter::SentInject, len);
            }
            complete_fast_send(setup, peer, schedule, params, len);
            return Ok(());
        }
    }
    send_general(state, buf, params)
}

/// Commits a message inside its command. Returns `false` if no slot is free.
#[inline(always)]
fn commit_inline(peer: &mut Peer, header: &Header, buf: &TxBuf) -> bool {
    if let Some(out) = &mut peer.out
        && let Some(slot) = out.tx.claim()
    {
        inline::send(slot, header, buf);
        out.mark_last();
        return true;
    }
    false
}

/// Returns the peer of a send on the fast path, if the completion has room and the peer is
/// connected. The flags must contain none of [`SLOW_PATH_FLAGS`].
#[inline(always)]
pub(crate) fn fast_peer<'a>(
    setup: &Setup,
    peers: &'a mut Peers,
    params: &SendParams,
) -> Option<&'a mut Peer> {
    if params.reports_success && setup.ep.tx_cq.room() == 0 {
        return None;
    }
    let peer = peers.cached(params.dest)?;
    (peer.state == PeerState::Connected).then_some(peer)
}

/// Announces and completes a message that the fast path has committed.
#[inline(always)]
fn complete_fast_send(
    setup: &Setup,
    peer: &mut Peer,
    schedule: &mut Schedule,
    params: &SendParams,
    len: usize,
) {
    announce(peer, params.flags, schedule, &setup.ep);
    params.report(len).done_not_deferred(&setup.ep);
}

/// The general path: finds the peer, connects to it if needed, and selects the protocol.
#[inline(never)]
fn send_general(state: &mut State, buf: TxBuf, params: &SendParams) -> Result {
    if params.reports_success && state.setup.ep.tx_cq.room() == 0 {
        return Err(Errno::Again);
    }
    let mut connector = state.connector();
    let index = connector.peers.resolve(params.dest)?;
    if connector.peers[index].state != PeerState::Connected {
        connector.ensure_connected(index)?;
        check_deferred(&mut connector, index)?;
    }
    let peer = &mut connector.peers[index];
    if peer.inbox.is_none() && peer.is_full() {
        // The peer's hello with its credit word may have arrived.
        poll_peer(&mut connector, index);
        connector.schedule.parking.wake(&connector.setup.ep);
    }
    let (setup, len) = (connector.setup, buf.len());
    let peer = &mut connector.peers[index];
    let result = send::send(
        peer,
        &setup.config,
        &setup.shared,
        &params.header,
        buf,
        params.report(len),
    );
    match result {
        Ok(Sent::Done) => {
            if !is_inline(&setup.config, &params.header, len, params.flags) {
                setup
                    .ep
                    .stats
                    .count_protocol(ProtocolCounter::SentInject, len);
            }
            if peer.state != PeerState::Connected {
                // The completion is pushed once the peer exists.
                peer.held_sends.push(params.report(len));
                return Ok(());
            }
            announce(peer, params.flags, connector.schedule, &setup.ep);
            params.report(len).done(&setup.ep);
        }
        Ok(Sent::Pending) => {
            announce(peer, params.flags, connector.schedule, &setup.ep);
            connector.schedule.activate(peer, &setup.ep);
        }
        Err(errno) => return Err(connector.reserve_error(index, errno)),
    }
    Ok(())
}
