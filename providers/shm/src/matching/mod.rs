//! `Matching`: posted receives, and the messages that wait for one, within a quota.

pub(crate) mod command_receiver;
pub(crate) mod fast_path;

use std::sync::Arc;

use selvedge::FiAddr;
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{
    Envelope, Kind, Matcher, Posted, ReceivePolicy, Shared, Source, UnexpectedQuota,
};

use crate::peers::name::Name;

/// The receives of an endpoint and its unexpected messages.
#[derive(Debug)]
pub(crate) struct Matching {
    msgs: Matcher<Unexpected>,
    tags: Matcher<Unexpected>,
    /// How many bytes of unexpected messages are kept.
    pub(crate) quota: UnexpectedQuota,
    /// Which receives may name a source, and what is left of a multi-receive buffer when it ends.
    pub(crate) policy: ReceivePolicy,
    /// Whether a message waits with its sender, because too much waits here.
    is_stalled: bool,
}

/// A message that waits for its receive.
#[derive(Debug)]
pub(crate) enum Unexpected {
    /// It is here; the sender may want to know when it has been received.
    Bytes { bytes: Box<[u8]>, ack: Option<Ack> },
    /// It is with the sender, as long as that lives.
    Rts { life: u32, msg_id: u32 },
}

/// A sender that wants to know when its message has been received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) life: u32,
    pub(crate) msg_id: u32,
}

impl Matching {
    /// Empty queues that keep up to `limit` bytes of unexpected messages.
    pub(crate) fn new(policy: ReceivePolicy, limit: usize) -> Self {
        Self {
            msgs: Matcher::new(),
            tags: Matcher::new(),
            quota: UnexpectedQuota::new(limit),
            policy,
            is_stalled: false,
        }
    }

    #[inline]
    pub(crate) fn matcher(&mut self, kind: Kind) -> &mut Matcher<Unexpected> {
        match kind {
            Kind::Msg => &mut self.msgs,
            Kind::Tagged => &mut self.tags,
        }
    }

    /// Has messages meet shared receives, where there are none of its own for them.
    pub(crate) fn share(&mut self, srx: &Arc<Shared>) {
        self.msgs.share(srx, Kind::Msg);
        self.tags.share(srx, Kind::Tagged);
    }

    /// Keeps a message until its receive is posted; `kept` is what its sender has waiting.
    #[cold]
    pub(crate) fn keep(
        &mut self,
        kind: Kind,
        env: Envelope,
        bytes: Box<[u8]>,
        ack: Option<Ack>,
        kept: &mut usize,
    ) {
        self.is_stalled = false;
        self.quota.charge(bytes.len(), kept);
        self.matcher(kind)
            .store(env, Unexpected::Bytes { bytes, ack });
    }

    /// A message has to wait with its sender. Whether the one before had not.
    #[cold]
    pub(crate) fn stall(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stalled, true)
    }

    /// Both sides of matching, to look at.
    pub(crate) fn matchers(&self) -> [(Kind, &Matcher<Unexpected>); 2] {
        [(Kind::Msg, &self.msgs), (Kind::Tagged, &self.tags)]
    }

    /// Whether a message of this source waits for its receive.
    pub(crate) fn has_unexpected_from(&mut self, source: Source) -> bool {
        [&mut self.msgs, &mut self.tags]
            .into_iter()
            .any(|matcher| matcher.has_from(source))
    }

    /// Forgets the receives that name a source, and the offers of a source that is gone. Messages
    /// that are here stay, and so do claimed offers: whoever claimed one is told.
    pub(crate) fn fail_source(&mut self, source: Source) -> Vec<Posted> {
        let mut failed = Vec::new();
        for matcher in [&mut self.msgs, &mut self.tags] {
            failed.extend(matcher.fail_source(source));
            matcher.drop_unexpected(|env, unexpected| {
                env.src == source && matches!(unexpected, Unexpected::Rts { .. })
            });
        }
        failed
    }
}

/// Reports a message of the peer called `name`, whose index is `src`: `len` bytes of it are in its receive.
#[inline]
pub(crate) fn report(
    name: &Name,
    ep: &Ep,
    src: FiAddr,
    posted: Posted,
    env: &Envelope,
    len: usize,
    sink: &mut Sink<'_>,
) {
    match ep.is_unknown(src) {
        false => ep.rx_done(posted, env, len, src, sink),
        true => ep.rx_unknown(posted, env, len, &name.to_address()),
    }
}
