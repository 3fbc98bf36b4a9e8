//! Posting receives, and the endpoint's part of directed, peeking and multi-receive kinds. Matching
//! is in the kit.

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

/// Most commands that are taken when no unexpected message matches.
const BUDGET: usize = 64;

/// Posts a plain receive from any peer, or one whose source was set by [`direct`].
#[inline(always)]
pub(crate) fn post(state: &mut State, posted: Posted) {
    let matcher = state.matching.matcher(posted.kind);
    if let Some((posted, env, unexpected)) = matcher.post(posted) {
        state.deliver(posted, env, unexpected);
    }
}

/// Posts a receive from the peer at `src`, or from any.
///
/// # Errors
/// As [`direct`], and as [`Receiver::recv_with_flags`].
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

/// Connects to a disconnected peer that has left no matching message, as a send does, so that a
/// message for a directed receive can arrive.
///
/// # Errors
/// As [`crate::connect::Connector::reach`].
#[inline]
fn expect_from(state: &mut State, index: usize, posted: &Posted) -> Result {
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
        Ok(Source(self.peers.at(addr)? as u32))
    }

    fn addr_of(&mut self, source: Source) -> FiAddr {
        self.peers[source.0 as usize].fi_addr(&self.setup.av)
    }

    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result {
        if !self.matching.policy.is_directed(posted.kind) {
            return Ok(());
        }
        let index = self.peers.at(src)?;
        posted.src = Source(index as u32);
        expect_from(self, index, posted)
    }

    fn poll_unexpected(&mut self) {
        // The message may be among commands that were not taken yet.
        progress::drain_doorbell(self);
        self.progress(BUDGET, &mut Sink::none());
    }

    #[cold]
    fn deliver(&mut self, posted: Posted, env: Envelope, unexpected: Unexpected) {
        let (mut receiver, peers) = self.command_receiver();
        let peer = &mut peers[env.src.0 as usize];
        receiver.deliver(peer, posted, env, unexpected);
    }

    /// Discards an unexpected message. For its sender it is received.
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
