//! `Matching`: the posted receives of an endpoint, and its unexpected messages within a quota.

pub(crate) mod command_receiver;
pub(crate) mod fast_path;
pub(crate) mod lent;

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
    /// The quota of unexpected messages, in bytes.
    pub(crate) quota: UnexpectedQuota,
    /// The policy of directed receives and of multi-receive buffers.
    pub(crate) policy: ReceivePolicy,
    /// Whether a message stays with its sender because the quota is used up.
    is_stalled: bool,
}

/// An unexpected message.
#[derive(Debug)]
pub(crate) enum Unexpected {
    /// A copy of the message; with `ack`, the sender expects an acknowledgement of the receive.
    Bytes { bytes: Box<[u8]>, ack: Option<Ack> },
    /// An RTS: the message is in the sender's memory until the sender's incarnation ends.
    Rts { incarnation: u32, msg_id: u32 },
}

/// An acknowledgement that a sender expects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) incarnation: u32,
    pub(crate) msg_id: u32,
}

impl Matching {
    /// Creates empty matchers that keep up to `limit` bytes of unexpected messages.
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

    /// Adds a shared receive context: a message that matches no receive of this endpoint is matched
    /// with the shared receives.
    pub(crate) fn share(&mut self, srx: &Arc<Shared>) {
        self.msgs.share(srx, Kind::Msg);
        self.tags.share(srx, Kind::Tagged);
    }

    /// Keeps an unexpected message, and adds its bytes to `kept`, the number of bytes that are kept
    /// of its sender.
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

    /// Records that a message stays with its sender. Returns `false` if that was recorded already.
    #[cold]
    pub(crate) fn stall(&mut self) -> bool {
        !std::mem::replace(&mut self.is_stalled, true)
    }

    /// Returns both matchers, for telemetry.
    pub(crate) fn matchers(&self) -> [(Kind, &Matcher<Unexpected>); 2] {
        [(Kind::Msg, &self.msgs), (Kind::Tagged, &self.tags)]
    }

    /// Whether an unexpected message of this source is kept.
    pub(crate) fn has_unexpected_from(&mut self, source: Source) -> bool {
        [&mut self.msgs, &mut self.tags]
            .into_iter()
            .any(|matcher| matcher.has_from(source))
    }

    /// Removes the receives that are directed to a disconnected source, and returns them. Drops the
    /// source's RTSs. Copied messages and claimed RTSs stay: the receive of a claimed RTS fails.
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

/// Reports a received message of the peer called `name`, whose index is `src`. The receive holds
/// the first `len` bytes of the message.
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
    if ep.is_unknown(src) {
        ep.rx_unknown(posted, env, len, &name.to_address())
    } else {
        ep.rx_done(posted, env, len, src, sink)
    }
}
