//! Receives that are more than a buffer for one message: multi-receive buffers, and looking for,
//! claiming and discarding messages that wait.
//!
//! Plain receives never come here.

use selvedge::{CompletionFlags, Context, Errno, FiAddr, OpFlags, Result};

use super::{Envelope, Kind, Matcher, Posted, ReceivePolicy, Source};
use crate::Ep;

/// What every receive may say.
pub const COMMON_FLAGS: OpFlags = OpFlags::COMPLETION.union(OpFlags::MORE);
const LOOKING: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM).union(OpFlags::DISCARD);

/// An endpoint, as far as receives are concerned. [`Self::recv_with_flags`] is what it is for.
pub trait Receiver {
    /// What is kept of an unexpected message.
    type Kept;

    /// The matcher of an interface.
    fn matcher(&mut self, kind: Kind) -> &mut Matcher<Self::Kept>;

    /// Who may name a source.
    fn policy(&self) -> &ReceivePolicy;

    /// Where completions go.
    fn ep(&self) -> &Ep;

    /// The peer at an index of the address vector.
    ///
    /// # Errors
    /// [`Errno::Inval`] when there is none.
    fn source_at(&mut self, addr: FiAddr) -> Result<Source>;

    /// The index of a peer in the address vector.
    fn addr_of(&mut self, source: Source) -> FiAddr;

    /// Makes a receive wait for the peer at `src` alone, if it may ([`ReceivePolicy::directs`]).
    ///
    /// # Errors
    /// As [`Self::source_at`].
    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result;

    /// Takes what peers have sent and nobody has looked at.
    fn poll_unexpected(&mut self);

    /// A receive takes a message that waited for it.
    fn deliver(&mut self, posted: Posted, env: Envelope, kept: Self::Kept);

    /// Drops a message. To its sender it is received.
    fn discard(&mut self, env: &Envelope, kept: Self::Kept);

    /// Takes a posted receive back, and reports that.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] when none with this context waits.
    #[cold]
    fn cancel(&mut self, context: Context) -> Result {
        let posted = self.matcher(Kind::Msg).cancel(context);
        let posted = posted.or_else(|| self.matcher(Kind::Tagged).cancel(context));
        self.ep().rx_cancelled(posted.ok_or(Errno::NoEnt)?);
        Ok(())
    }

    /// Has messages that wait meet receives of a shared context.
    #[cold]
    fn match_shared(&mut self) {
        for kind in [Kind::Msg, Kind::Tagged] {
            while let Some((posted, env, kept)) = self.matcher(kind).take_shared() {
                self.deliver(posted, env, kept);
            }
        }
    }

    /// Posts a receive with other flags than [`COMMON_FLAGS`].
    ///
    /// # Errors
    /// [`Errno::BadFlags`] for flags that do not go together, [`Errno::Inval`] for a multi-receive
    /// buffer in several pieces, [`Errno::NoMsg`] for a claim of nothing.
    #[cold]
    fn recv_with_flags(&mut self, posted: Posted, src: FiAddr) -> Result {
        let (flags, kind) = (posted.flags, posted.kind);
        let mut what = flags.difference(COMMON_FLAGS);
        if what.contains(OpFlags::PEER_TRANSFER) {
            if !self.ep().has_layer() {
                return Err(Errno::BadFlags);
            }
            what -= OpFlags::PEER_TRANSFER;
            if what.is_empty() {
                return recv_of_layer(self, posted, src);
            }
        }
        if what == OpFlags::MULTI_RECV {
            return recv_multi(self, posted, src);
        }
        if what == OpFlags::DEFERRED {
            return recv_deferred(self, posted, src);
        }
        if kind == Kind::Msg || !LOOKING.contains(what) {
            return Err(Errno::BadFlags);
        }
        match what {
            OpFlags::CLAIM => recv_claimed(self, posted),
            _ if what == OpFlags::CLAIM | OpFlags::DISCARD => discard_claimed(self, &posted),
            _ if what == LOOKING || !what.contains(OpFlags::PEEK) => Err(Errno::BadFlags),
            _ => peek(self, &posted, src),
        }
    }
}

/// A plain receive of a layer's.
fn recv_of_layer<R: Receiver + ?Sized>(at: &mut R, mut posted: Posted, src: FiAddr) -> Result {
    if src != at.policy().any_source {
        at.direct(&mut posted, src)?;
    }
    let kind = posted.kind;
    if let Some((posted, env, kept)) = at.matcher(kind).post(posted) {
        at.deliver(posted, env, kept);
    }
    Ok(())
}

fn recv_multi<R: Receiver + ?Sized>(at: &mut R, mut posted: Posted, src: FiAddr) -> Result {
    if src != at.policy().any_source {
        at.direct(&mut posted, src)?;
    }
    let (kind, least) = (posted.kind, at.policy().min_multi_recv);
    at.matcher(kind)
        .post_multi(posted, least)
        .map_err(|_| Errno::Inval)?;
    while let Some((posted, env, kept)) = at.matcher(kind).feed_multi() {
        at.deliver(posted, env, kept);
    }
    Ok(())
}

fn recv_deferred<R: Receiver + ?Sized>(at: &mut R, mut posted: Posted, src: FiAddr) -> Result {
    if src != at.policy().any_source {
        at.direct(&mut posted, src)?;
    }
    if let Some((posted, env, kept)) = at.matcher(posted.kind).post_deferred(posted) {
        at.deliver(posted, env, kept);
    }
    Ok(())
}

/// Looks for a message, and claims or discards it if that is wanted. The receive's buffer is not
/// used.
fn peek<R: Receiver + ?Sized>(at: &mut R, posted: &Posted, src: FiAddr) -> Result {
    let posted_src = source(at, posted.kind, src)?;
    let found = look(at, posted, posted_src).or_else(|| {
        at.poll_unexpected();
        look(at, posted, posted_src)
    });
    let Some((env, more)) = found else {
        at.ep().rx_no_message(posted);
        return Ok(());
    };
    report_seen(at, posted, &env, more);
    Ok(())
}

/// The source that a receive of this kind from `src` waits for.
fn source<R: Receiver + ?Sized>(at: &mut R, kind: Kind, src: FiAddr) -> Result<Source> {
    if src == at.policy().any_source || !at.policy().is_directed(kind) {
        return Ok(Source::ANY);
    }
    at.source_at(src)
}

/// Finds a message that waits, and does with it what the flags say; what its completion says
/// besides.
fn look<R: Receiver + ?Sized>(
    at: &mut R,
    posted: &Posted,
    src: Source,
) -> Option<(Envelope, CompletionFlags)> {
    let matcher = at.matcher(posted.kind);
    let (tag, context) = (posted.tag, posted.context);
    if posted.flags.contains(OpFlags::CLAIM) {
        let env = matcher.claim(src, tag, context)?;
        return Some((env, CompletionFlags::CLAIM));
    }
    if posted.flags.contains(OpFlags::DISCARD) {
        let (env, kept) = matcher.take(src, tag)?;
        at.discard(&env, kept);
        return Some((env, CompletionFlags::empty()));
    }
    let (env, _) = matcher.peek(src, tag)?;
    Some((*env, CompletionFlags::empty()))
}

/// Receives the message that was claimed with this context.
fn recv_claimed<R: Receiver + ?Sized>(at: &mut R, posted: Posted) -> Result {
    let claimed = at.matcher(posted.kind).take_claimed(posted.context);
    let (env, kept) = claimed.ok_or(Errno::NoMsg)?;
    at.deliver(posted, env, kept);
    Ok(())
}

fn discard_claimed<R: Receiver + ?Sized>(at: &mut R, posted: &Posted) -> Result {
    let claimed = at.matcher(posted.kind).take_claimed(posted.context);
    let (env, kept) = claimed.ok_or(Errno::NoMsg)?;
    at.discard(&env, kept);
    report_seen(at, posted, &env, CompletionFlags::CLAIM);
    Ok(())
}

fn report_seen<R: Receiver + ?Sized>(
    at: &mut R,
    posted: &Posted,
    env: &Envelope,
    more: CompletionFlags,
) {
    let src = at.addr_of(env.src);
    at.ep().rx_peeked(posted, env, more, src);
}
