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

/// The parameters that all kinds of sends have in common.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) header: Header,
    pub(crate) dest: FiAddr,
    pub(crate) context: Context,
    pub(crate) flags: OpFlags,
    /// Whether success is reported (fi_inject(3) does not).
    pub(crate) reports: bool,
}

impl Send {
    /// The completion of a message of `len` bytes.
    #[inline(always)]
    fn report(&self, len: usize) -> Report {
        Report {
            kind: self.header.kind.sent(),
            context: self.context,
            flags: self.flags,
            reports_success: self.reports,
            len,
        }
    }
}

/// Sends eight bytes by the fast path, inlined. Returns `false` if a precondition does not hold;
/// [`send`] then handles the message.
#[inline(always)]
pub(crate) fn send_word(state: &mut State, word: u64, send: &Send) -> bool {
    let (setup, peers, schedule) = state.outgoing();
    if is_inline(&setup.config, &send.header, 8, send.flags)
        && let Some(peer) = fast_peer(setup, peers, send)
        && let Some(out) = &mut peer.out
        && let Some(slot) = out.tx.claim()
    {
        send.header
            .commit_inline(slot, 8, |slot, at| slot.put(at, word));
        out.mark_last();
        sent(setup, peer, schedule, send, 8);
        return true;
    }
    false
}

/// Sends a message.
///
/// # Errors
/// As [`send::send`]; [`Errno::NotConn`] for a peer that is disconnected and was not restarted.
#[inline(never)]
pub(crate) fn send(state: &mut State, buf: TxBuf, send: &Send) -> Result {
    let len = buf.len();
    let (setup, peers, schedule) = state.outgoing();
    if len <= setup.config.inject_size
        && !send.flags.intersects(SLOW_PATH_FLAGS)
        && let Some(peer) = fast_peer(setup, peers, send)
    {
        let is_inline = is_inline(&setup.config, &send.header, len, send.flags);
        let is_committed = match is_inline {
            true => commit_inline(peer, &send.header, &buf),
            false => inject::send(peer, &send.header, &buf, None).is_ok(),
        };
        if is_committed {
            if !is_inline {
                setup
                    .ep
                    .stats
                    .count_protocol(ProtocolCounter::SentInject, len);
            }
            sent(setup, peer, schedule, send, len);
            return Ok(());
        }
    }
    send_general(state, buf, send)
}

/// Commits a message inside a command. `false` if no slot is free.
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

/// The peer of a send on the fast path, if the completion has room and the peer is connected. The
/// flags must not need the general path ([`SLOW_PATH_FLAGS`]).
#[inline(always)]
fn fast_peer<'a>(setup: &Setup, peers: &'a mut Peers, send: &Send) -> Option<&'a mut Peer> {
    if send.reports && setup.ep.tx_cq.room() == 0 {
        return None;
    }
    let peer = peers.cached(send.dest)?;
    (peer.state == PeerState::Connected).then_some(peer)
}

/// Announces and completes a message that the fast path has committed.
#[inline(always)]
fn sent(setup: &Setup, peer: &mut Peer, schedule: &mut Schedule, send: &Send, len: usize) {
    announce(peer, send.flags, schedule, &setup.ep);
    send.report(len).done_not_deferred(&setup.ep);
}

/// The general path: finds the peer, connects to it if needed, and selects the protocol.
#[inline(never)]
fn send_general(state: &mut State, buf: TxBuf, send: &Send) -> Result {
    if send.reports && state.setup.ep.tx_cq.room() == 0 {
        return Err(Errno::Again);
    }
    let mut connector = state.connector();
    let index = connector.peers.at(send.dest)?;
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
    let special = &setup.shared.special;
    let peer = &mut connector.peers[index];
    let sent = send::send(
        peer,
        &setup.config,
        special,
        &send.header,
        buf,
        send.report(len),
    );
    match sent {
        Ok(Sent::Done) => {
            if !is_inline(&setup.config, &send.header, len, send.flags) {
                setup
                    .ep
                    .stats
                    .count_protocol(ProtocolCounter::SentInject, len);
            }
            if peer.state != PeerState::Connected {
                // The completion is pushed once the peer exists.
                peer.held_sends.push(send.report(len));
                return Ok(());
            }
            announce(peer, send.flags, connector.schedule, &setup.ep);
            send.report(len).done(&setup.ep);
        }
        Ok(Sent::Pending) => {
            announce(peer, send.flags, connector.schedule, &setup.ep);
            connector.schedule.activate(peer, &setup.ep);
        }
        Err(errno) => return Err(connector.reserve_error(index, errno)),
    }
    Ok(())
}
