//! Receives that are more than a buffer for one message: multi-receive buffers, and looking for,
//! claiming and discarding messages that wait.
//!
//! Plain receives never come here.

use selvedge::{CompletionFlags, Errno, FiAddr, OpFlags, Result};
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{Envelope, Kind, Posted, Source};

use crate::peer::Peer;
use crate::proto::{iov, status};
use crate::state::{State, Unexpected};

/// What every receive may say.
pub(crate) const PLAIN: OpFlags = OpFlags::COMPLETION.union(OpFlags::MORE);
const LOOKING: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM).union(OpFlags::DISCARD);

/// Messages that are taken from peers when none is found that waits.
const BUDGET: usize = 64;

impl State {
    /// Posts a receive that is not plain.
    #[cold]
    pub(crate) fn recv_otherwise(&mut self, posted: Posted, src: FiAddr) -> Result {
        let (flags, kind) = (posted.flags, posted.kind);
        let what = flags.difference(PLAIN);
        if what == OpFlags::MULTI_RECV {
            return self.recv_multi(posted, src);
        }
        if kind == Kind::Msg || !LOOKING.contains(what) {
            return Err(Errno::BadFlags);
        }
        match what {
            OpFlags::CLAIM => self.recv_claimed(posted),
            _ if what == OpFlags::CLAIM | OpFlags::DISCARD => self.discard_claimed(&posted),
            _ if what == LOOKING || !what.contains(OpFlags::PEEK) => Err(Errno::BadFlags),
            _ => self.peek(&posted, src),
        }
    }

    fn recv_multi(&mut self, mut posted: Posted, src: FiAddr) -> Result {
        if src != self.manner.any {
            self.direct(&mut posted, src)?;
        }
        let (kind, least) = (posted.kind, self.manner.least);
        let matcher = self.inbound.matcher(kind);
        matcher
            .post_multi(posted, least)
            .map_err(|_| Errno::Inval)?;
        while let Some((posted, env, unexpected)) = self.inbound.matcher(kind).feed() {
            self.meet(posted, env, unexpected);
        }
        Ok(())
    }

    /// Looks for a message, and claims or discards it if that is wanted. The receive's buffer is not
    /// used.
    fn peek(&mut self, posted: &Posted, src: FiAddr) -> Result {
        let posted_src = self.source(posted.kind, src)?;
        let found = self.look(posted, posted_src).or_else(|| {
            // It may be with its sender's commands still.
            self.answer_bells();
            self.progress(BUDGET, &mut Sink::none());
            self.look(posted, posted_src)
        });
        let Some((env, more)) = found else {
            self.ep
                .rx_no_message(posted.context, posted.kind, posted.tag);
            return Ok(());
        };
        self.report_seen(posted, &env, more);
        Ok(())
    }

    /// The source that a receive of this kind from `src` waits for.
    fn source(&mut self, kind: Kind, src: FiAddr) -> Result<Source> {
        if src == self.manner.any || !self.manner.directs(kind) {
            return Ok(Source::ANY);
        }
        Ok(Source(self.peer_at(src)? as u32))
    }

    /// Finds a message that waits, and does with it what the flags say; what its completion says
    /// besides.
    fn look(&mut self, posted: &Posted, src: Source) -> Option<(Envelope, CompletionFlags)> {
        let matcher = self.inbound.matcher(posted.kind);
        let (tag, context) = (posted.tag, posted.context);
        if posted.flags.contains(OpFlags::CLAIM) {
            let env = matcher.claim(src, tag, context)?;
            return Some((env, CompletionFlags::CLAIM));
        }
        if posted.flags.contains(OpFlags::DISCARD) {
            let (env, unexpected) = matcher.take(src, tag)?;
            self.discard(&env, unexpected);
            return Some((env, CompletionFlags::empty()));
        }
        let (env, _) = matcher.peek(src, tag)?;
        Some((*env, CompletionFlags::empty()))
    }

    /// Receives the message that was claimed with this context.
    fn recv_claimed(&mut self, posted: Posted) -> Result {
        let matcher = self.inbound.matcher(posted.kind);
        let claimed = matcher.take_claimed(posted.context);
        let (env, unexpected) = claimed.ok_or(Errno::NoMsg)?;
        self.meet(posted, env, unexpected);
        Ok(())
    }

    fn discard_claimed(&mut self, posted: &Posted) -> Result {
        let matcher = self.inbound.matcher(posted.kind);
        let claimed = matcher.take_claimed(posted.context);
        let (env, unexpected) = claimed.ok_or(Errno::NoMsg)?;
        self.discard(&env, unexpected);
        self.report_seen(posted, &env, CompletionFlags::CLAIM);
        Ok(())
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

    fn report_seen(&mut self, posted: &Posted, env: &Envelope, more: CompletionFlags) {
        let src = self.peers[env.src.0 as usize].fi_addr(&self.av);
        self.ep
            .rx_peeked(posted.context, posted.kind, env, more, src);
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
