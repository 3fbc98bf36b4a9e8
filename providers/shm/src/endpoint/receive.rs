//! Posting receives, and the endpoint's part of directed receives, peeks and multi-receives. The
//! kit matches receives and messages.

use selvedge::{FiAddr, Result};
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::shell::EndpointState;
use selvedge_kit::srx::{
    COMMON_FLAGS, Envelope, Kind, Matcher, Posted, ReceivePolicy, Receiver, Source,
};

use crate::endpoint::state::State;
use crate::matching::Unexpected;
use crate::peers::peer::State as PeerState;
use crate::progress;
use crate::transfers::{status, transfer};

/// The maximum number of commands that are taken from a peer when no unexpected message matches.
const BUDGET: usize = 64;

/// Posts a plain receive from any peer, or one whose source was set by [`Receiver::direct`].
#[inline(always)]
pub(crate) fn post(state: &mut State, posted: Posted) {
    let matcher = state.matching.matcher(posted.kind);
    if let Some((posted, env, unexpected)) = matcher.post(posted) {
        state.deliver(posted, env, unexpected);
    }
}

/// Posts a receive from the peer at `src`, or from any peer.
///
/// # Errors
/// As [`Receiver::direct`], and as [`Receiver::recv_with_flags`].
#[inline(never)]
pub(crate) fn post_from(state: &mut State, src: FiAddr, mut posted: Posted) -> Result {
    if !COMMON_FLAGS.contains(posted.flags) {
        return state.recv_with_flags(posted, src);
    }
    if src != state.matching.policy.any_source {
        state.direct(&mut posted, src)?;
    }
    post(state, posted);
    Ok(())
}

/// Connects to the disconnected source of a directed receive, as a send does, so that a message for
/// the receive can arrive. Does not connect if an unexpected message of the source matches.
///
/// # Errors
/// As [`crate::connect::Connector::ensure_connected`].
#[inline]
fn ensure_source_connected(state: &mut State, index: usize, posted: &Posted) -> Result {
    if !matches!(state.peers[index].state, PeerState::Disconnected) {
        return Ok(());
    }
    let matcher = state.matching.matcher(posted.kind);
    if matcher.peek(posted.src, posted.tag).is_some() {
        return Ok(());
    }
    state.connector().ensure_connected(index)
}

impl Receiver for State {
    type Kept = Unexpected;

    fn matcher(&mut self, kind: Kind) -> &mut Matcher<Unexpected> {
        self.matching.matcher(kind)
    }

    fn policy(&self) -> &ReceivePolicy {
        &self.matching.policy
    }

    fn ep(&self) -> &Ep {
        &self.setup.ep
    }

    fn source_at(&mut self, addr: FiAddr) -> Result<Source> {
        Ok(Source(self.peers.resolve(addr)? as u32))
    }

    fn addr_of(&mut self, source: Source) -> FiAddr {
        self.peers[source.0 as usize].fi_addr(&self.setup.av)
    }

    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result {
        if !self.matching.policy.is_directed(posted.kind) {
            return Ok(());
        }
        let index = self.peers.resolve(src)?;
        posted.src = Source(index as u32);
        ensure_source_connected(self, index, posted)
    }

    fn poll_unexpected(&mut self) {
        // The message may be in a command that was not taken yet.
        progress::drain_doorbell(self);
        self.progress(BUDGET, &mut Sink::none());
    }

    #[cold]
    fn deliver(&mut self, posted: Posted, env: Envelope, unexpected: Unexpected) {
        let (mut receiver, peers) = self.command_receiver();
        let peer = &mut peers[env.src.0 as usize];
        receiver.deliver(peer, posted, env, unexpected);
    }

    fn can_lend(&self) -> bool {
        true
    }

    /// Discards an unexpected message. The sender gets the same response as for a received message.
    fn discard(&mut self, env: &Envelope, unexpected: Unexpected) {
        let peer = &mut self.peers[env.src.0 as usize];
        match unexpected {
            Unexpected::Bytes { bytes, ack } => {
                self.matching
                    .quota
                    .release(bytes.len(), &mut peer.kept_bytes);
                if let Some(ack) = ack {
                    peer.respond(ack.incarnation, ack.msg_id, status::DONE);
                }
            }
            Unexpected::Rts {
                incarnation,
                msg_id,
            } if incarnation == peer.incarnation => {
                transfer::end_transfer(peer, msg_id);
                peer.respond(incarnation, msg_id, status::DONE);
            }
            Unexpected::Rts { .. } => {}
        }
    }
}
