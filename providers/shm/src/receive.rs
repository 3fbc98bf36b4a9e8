//! What receives that are more than a buffer for one message ask of an endpoint; the kit does the
//! rest.

use selvedge::{FiAddr, Result};
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{Envelope, Kind, Manner, Matcher, Posted, Receiver, Source};

use crate::peer::Peer;
use crate::proto::{iov, status};
use crate::state::{State, Unexpected};

/// Messages that are taken from peers when none is found that waits.
const BUDGET: usize = 64;

impl Receiver for State {
    type Kept = Unexpected;

    fn matcher(&mut self, kind: Kind) -> &mut Matcher<Unexpected> {
        self.inbound.matcher(kind)
    }

    fn manner(&self) -> &Manner {
        &self.manner
    }

    fn ep(&self) -> &Ep {
        &self.ep
    }

    fn source_at(&mut self, addr: FiAddr) -> Result<Source> {
        Ok(Source(self.peer_at(addr)? as u32))
    }

    fn addr_of(&mut self, source: Source) -> FiAddr {
        self.peers[source.0 as usize].fi_addr(&self.av)
    }

    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result {
        Self::direct(self, posted, src)
    }

    fn look_for_more(&mut self) {
        // It may be with its sender's commands still.
        self.answer_bells();
        self.progress(BUDGET, &mut Sink::none());
    }

    fn meet(&mut self, posted: Posted, env: Envelope, unexpected: Unexpected) {
        Self::meet(self, posted, env, unexpected);
    }

    /// Drops a message. To its sender it is received.
    fn discard(&mut self, env: &Envelope, unexpected: Unexpected) {
        let peer = &mut self.peers[env.src.0 as usize];
        match unexpected {
            Unexpected::Bytes { bytes, ack } => {
                self.inbound.allowance.free(bytes.len(), &mut peer.kept);
                if let Some(ack) = ack {
                    peer.answer(ack.life, ack.msg_id, status::DONE);
                }
            }
            Unexpected::Offer { life, msg_id } if life == peer.life => {
                iov::end(peer, msg_id);
                peer.answer(life, msg_id, status::DONE);
            }
            Unexpected::Offer { .. } => {}
        }
    }
}

/// Reports a message of `peer`, whose index is `src`: `len` bytes of it are in its receive.
#[inline]
pub(crate) fn report(
    peer: &Peer,
    ep: &Ep,
    src: FiAddr,
    posted: Posted,
    env: &Envelope,
    len: usize,
    sink: &mut Sink<'_>,
) {
    match ep.is_unknown(src) {
        false => ep.rx_done(posted, env, len, src, sink),
        true => ep.rx_unknown(posted, env, len, &peer.name.to_address()),
    }
}
