//! [`Receiver`] posts receives with special flags: multi-receive buffers, and peeks, claims and
//! discards of unexpected messages.
//!
//! Plain receives do not use this module.

use selvedge::{CompletionFlags, Context, Errno, FiAddr, OpFlags, Result};

use super::{COMMON_FLAGS, Envelope, Kind, Matcher, Posted, ReceivePolicy, Source};
use crate::Ep;

const PEEK_FLAGS: OpFlags = OpFlags::PEEK.union(OpFlags::CLAIM).union(OpFlags::DISCARD);

/// A `Receiver` is the receive side of a provider's endpoint, for [`Self::recv_with_flags`].
pub trait Receiver {
    /// The provider's data of an unexpected message.
    type Kept;

    /// Returns the matcher of untagged or of tagged messages.
    fn matcher(&mut self, kind: Kind) -> &mut Matcher<Self::Kept>;

    /// The receive policy.
    fn policy(&self) -> &ReceivePolicy;

    /// The endpoint that reports completions.
    fn ep(&self) -> &Ep;

    /// The peer at an index of the address vector.
    ///
    /// # Errors
    /// [`Errno::Inval`] if there is none.
    fn source_at(&mut self, addr: FiAddr) -> Result<Source>;

    /// The index of a peer in the address vector.
    fn addr_of(&mut self, source: Source) -> FiAddr;

    /// Restricts a receive to the peer at `src`, if the policy allows it
    /// ([`ReceivePolicy::is_directed`]).
    ///
    /// # Errors
    /// As [`Self::source_at`].
    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result;

    /// Polls the peers for messages that have arrived.
    fn poll_unexpected(&mut self);

    /// Delivers an unexpected message to a receive.
    fn deliver(&mut self, posted: Posted, env: Envelope, kept: Self::Kept);

    /// Whether receives may accept lent messages ([`OpFlags::LEND`]).
    fn can_lend(&self) -> bool {
        false
    }

    /// Drops a message. Its sender sees it as received.
    fn discard(&mut self, env: &Envelope, kept: Self::Kept);

    /// Cancels a posted receive and reports it as cancelled.
    ///
    /// # Errors
    /// [`Errno::NoEnt`] if no posted receive has this context.
    #[cold]
    fn cancel(&mut self, context: Context) -> Result {
        let posted = self.matcher(Kind::Msg).cancel(context);
        let posted = posted.or_else(|| self.matcher(Kind::Tagged).cancel(context));
        self.ep().rx_cancelled(posted.ok_or(Errno::NoEnt)?);
        Ok(())
    }

    /// Delivers unexpected messages to receives of the shared context.
    #[cold]
    fn match_shared(&mut self) {
        for kind in [Kind::Msg, Kind::Tagged] {
            while let Some((posted, env, kept)) = self.matcher(kind).take_shared() {
                self.deliver(posted, env, kept);
            }
        }
    }

    /// Posts a receive that has flags beyond [`COMMON_FLAGS`].
    ///
    /// # Errors
    /// [`Errno::BadFlags`] for an unsupported combination of flags, [`Errno::Inval`] for a
    /// multi-receive buffer with several segments, [`Errno::NoMsg`] if no message was claimed with
    /// this context; as [`Self::source_at`].
    #[cold]
    fn recv_with_flags(&mut self, posted: Posted, src: FiAddr) -> Result {
        let (flags, kind) = (posted.flags, posted.kind);
        let mut special = flags.difference(COMMON_FLAGS);
        if special.contains(OpFlags::PEER_TRANSFER) {
            if !self.ep().has_layer() {
                return Err(Errno::BadFlags);
            }
            special -= OpFlags::PEER_TRANSFER;
            if special.is_empty() {
                return recv_plain(self, posted, src);
            }
        }
        if special.contains(OpFlags::LEND) && self.can_lend() {
            return recv_lent(self, posted, src);
        }
        if special == OpFlags::MULTI_RECV {
            return recv_multi(self, posted, src);
        }
        if special == OpFlags::DEFERRED {
            return recv_deferred(self, posted, src);
        }
        if kind == Kind::Msg || !PEEK_FLAGS.contains(special) {
            return Err(Errno::BadFlags);
        }
        match special {
            OpFlags::CLAIM => recv_claimed(self, posted),
            _ if special == OpFlags::CLAIM | OpFlags::DISCARD => discard_claimed(self, &posted),
            _ if special == PEEK_FLAGS || !special.contains(OpFlags::PEEK) => Err(Errno::BadFlags),
            _ => peek(self, &posted, src),
        }
    }
}

/// Posts a receive that also accepts a lent message.
///
/// # Errors
/// [`Errno::BadFlags`] for another flag, except the receive of a claimed message.
fn recv_lent<R: Receiver + ?Sized>(receiver: &mut R, posted: Posted, src: FiAddr) -> Result {
    let others = posted.flags.difference(COMMON_FLAGS.union(OpFlags::LEND));
    match others {
        _ if others.is_empty() => recv_plain(receiver, posted, src),
        OpFlags::CLAIM if posted.kind == Kind::Tagged => recv_claimed(receiver, posted),
        _ => Err(Errno::BadFlags),
    }
}

/// Posts a receive that is matched like one without special flags.
fn recv_plain<R: Receiver + ?Sized>(receiver: &mut R, mut posted: Posted, src: FiAddr) -> Result {
    if src != receiver.policy().any_source {
        receiver.direct(&mut posted, src)?;
    }
    let kind = posted.kind;
    if let Some((posted, env, kept)) = receiver.matcher(kind).post(posted) {
        receiver.deliver(posted, env, kept);
    }
    Ok(())
}

fn recv_multi<R: Receiver + ?Sized>(receiver: &mut R, mut posted: Posted, src: FiAddr) -> Result {
    if src != receiver.policy().any_source {
        receiver.direct(&mut posted, src)?;
    }
    let (kind, min_left) = (posted.kind, receiver.policy().min_multi_recv);
    receiver
        .matcher(kind)
        .post_multi(posted, min_left)
        .map_err(|_| Errno::Inval)?;
    while let Some((posted, env, kept)) = receiver.matcher(kind).feed_multi() {
        receiver.deliver(posted, env, kept);
    }
    Ok(())
}

fn recv_deferred<R: Receiver + ?Sized>(
    receiver: &mut R,
    mut posted: Posted,
    src: FiAddr,
) -> Result {
    if src != receiver.policy().any_source {
        receiver.direct(&mut posted, src)?;
    }
    if let Some((posted, env, kept)) = receiver.matcher(posted.kind).post_deferred(posted) {
        receiver.deliver(posted, env, kept);
    }
    Ok(())
}

/// Searches for an unexpected message, claims or discards it if the flags say so, and reports the
/// result. The receive's buffer is not used.
fn peek<R: Receiver + ?Sized>(receiver: &mut R, posted: &Posted, src: FiAddr) -> Result {
    let posted_src = source(receiver, posted.kind, src)?;
    let found = search(receiver, posted, posted_src).or_else(|| {
        receiver.poll_unexpected();
        search(receiver, posted, posted_src)
    });
    let Some((env, more)) = found else {
        receiver.ep().rx_no_message(posted);
        return Ok(());
    };
    report_peeked(receiver, posted, &env, more);
    Ok(())
}

/// Returns the source that a receive of this kind from `src` matches.
fn source<R: Receiver + ?Sized>(receiver: &mut R, kind: Kind, src: FiAddr) -> Result<Source> {
    if src == receiver.policy().any_source || !receiver.policy().is_directed(kind) {
        return Ok(Source::ANY);
    }
    receiver.source_at(src)
}

/// Finds an unexpected message, and peeks at, claims or discards it according to the flags. Returns
/// its envelope and the extra flags of the completion.
fn search<R: Receiver + ?Sized>(
    receiver: &mut R,
    posted: &Posted,
    src: Source,
) -> Option<(Envelope, CompletionFlags)> {
    let matcher = receiver.matcher(posted.kind);
    let (tag, context) = (posted.tag, posted.context);
    if posted.flags.contains(OpFlags::CLAIM) {
        let env = matcher.claim(src, tag, context)?;
        return Some((env, CompletionFlags::CLAIM));
    }
    if posted.flags.contains(OpFlags::DISCARD) {
        let (env, kept) = matcher.take(src, tag)?;
        receiver.discard(&env, kept);
        return Some((env, CompletionFlags::empty()));
    }
    let (env, _) = matcher.peek(src, tag)?;
    Some((*env, CompletionFlags::empty()))
}

/// Receives the message that was claimed with the context of `posted`.
fn recv_claimed<R: Receiver + ?Sized>(receiver: &mut R, posted: Posted) -> Result {
    let claimed = receiver.matcher(posted.kind).take_claimed(posted.context);
    let (env, kept) = claimed.ok_or(Errno::NoMsg)?;
    receiver.deliver(posted, env, kept);
    Ok(())
}

fn discard_claimed<R: Receiver + ?Sized>(receiver: &mut R, posted: &Posted) -> Result {
    let claimed = receiver.matcher(posted.kind).take_claimed(posted.context);
    let (env, kept) = claimed.ok_or(Errno::NoMsg)?;
    receiver.discard(&env, kept);
    report_peeked(receiver, posted, &env, CompletionFlags::CLAIM);
    Ok(())
}

fn report_peeked<R: Receiver + ?Sized>(
    receiver: &mut R,
    posted: &Posted,
    env: &Envelope,
    more: CompletionFlags,
) {
    let src = receiver.addr_of(env.src);
    receiver.ep().rx_peeked(posted, env, more, src);
}
