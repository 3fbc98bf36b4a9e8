//! `Matching`: posted receives and unexpected messages.
//!
//! A message is matched when its header arrives. At that time its payload may still be incomplete
//! ([`PayloadState::Partial`]), exceed the quota and stay in the kernel and with the sender
//! ([`PayloadState::Held`]), or stay with the sender until a clear-to-send
//! ([`PayloadState::AtSender`]).

use std::sync::Arc;

use selvedge_kit::srx::{
    Envelope, Kind, Matcher, Posted, ReceivePolicy, Shared, Source, UnexpectedQuota,
};
use selvedge_kit::telemetry::{Gauge, SnapshotWriter};
use slab::Slab;

use crate::connection::Id;

/// The largest buffer that is reserved for an announced payload before its bytes arrive.
const FIRST_RESERVE: usize = 64 << 10;

/// The posted receives and unexpected messages of an endpoint.
#[derive(Debug)]
pub(crate) struct Matching {
    msgs: Matcher<usize>,
    tags: Matcher<usize>,
    pub(crate) policy: ReceivePolicy,
    quota: UnexpectedQuota,
    /// Bytes of each peer's unexpected messages, as the quota counts them.
    unexpected_bytes: Vec<usize>,
    /// The unexpected messages; the matchers refer to them by these keys.
    unexpected: Slab<UnexpectedMessage>,
}

/// A message without a matching receive.
#[derive(Debug)]
pub(crate) struct UnexpectedMessage {
    pub(crate) state: PayloadState,
    pub(crate) bytes: Vec<u8>,
    /// The acknowledgement number of the message's frame, if the sender requested an
    /// acknowledgement.
    pub(crate) number: Option<u64>,
    pub(crate) peer: usize,
    /// The connection that delivered the message.
    pub(crate) connection: Id,
    pub(crate) len: usize,
    /// Whether the quota counts the message's bytes.
    is_counted: bool,
    /// Whether the acknowledgement is sent when a receive takes the message, not when its bytes
    /// arrive.
    pub(crate) acks_on_receive: bool,
}

/// The location of an unexpected message's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadState {
    /// Buffered completely.
    Complete,
    /// Buffered partly; the rest is arriving.
    Partial,
    /// In the kernel and with the sender: the connection is not read until the quota has room.
    Held,
    /// With the sender, which has sent an RTS with this id.
    AtSender(u8),
    /// Lost: the connection ended before the payload was complete.
    Lost,
}

impl UnexpectedMessage {
    /// Creates a message of `len` bytes that arrived on a connection with a peer.
    pub(crate) fn new(connection: Id, peer: usize, state: PayloadState, len: usize) -> Self {
        Self {
            state,
            bytes: Vec::new(),
            number: None,
            peer,
            connection,
            len,
            is_counted: false,
            acks_on_receive: true,
        }
    }
}

impl Matching {
    /// Creates a `Matching` without receives and messages; `limit` is the quota in bytes.
    pub(crate) fn new(policy: ReceivePolicy, limit: usize) -> Self {
        Self {
            msgs: Matcher::new(),
            tags: Matcher::new(),
            policy,
            quota: UnexpectedQuota::new(limit),
            unexpected_bytes: Vec::new(),
            unexpected: Slab::new(),
        }
    }

    /// Lets messages that match no receive of the endpoint match the receives of a shared context.
    pub(crate) fn share(&mut self, srx: &Arc<Shared>) {
        self.msgs.share(srx, Kind::Msg);
        self.tags.share(srx, Kind::Tagged);
    }

    #[inline]
    pub(crate) fn matcher(&mut self, kind: Kind) -> &mut Matcher<usize> {
        match kind {
            Kind::Msg => &mut self.msgs,
            Kind::Tagged => &mut self.tags,
        }
    }

    /// Applies `take` to both matchers and returns the posted receives that `take` removes.
    pub(crate) fn take_posted(
        &mut self,
        mut take: impl FnMut(&mut Matcher<usize>) -> Vec<Posted>,
    ) -> Vec<Posted> {
        let mut taken = take(&mut self.msgs);
        taken.extend(take(&mut self.tags));
        taken
    }

    /// Whether the peer has an unexpected message, or a directed receive waits for the peer.
    pub(crate) fn needs_peer(&mut self, peer: usize) -> bool {
        let source = Source(peer as u32);
        self.unexpected_bytes(peer) > 0
            || [&mut self.msgs, &mut self.tags]
                .into_iter()
                .any(|matcher| matcher.has_from(source) || matcher.awaits(source))
    }

    /// Returns the bytes of a peer's unexpected messages, as the quota counts them.
    pub(crate) fn unexpected_bytes(&self, peer: usize) -> usize {
        self.unexpected_bytes.get(peer).copied().unwrap_or(0)
    }

    /// Whether the quota has room for a message of `peer`, one of `peers` peers. A message larger
    /// than the whole quota never has room.
    pub(crate) fn has_room(&self, peer: usize, len: usize, peers: usize) -> bool {
        len <= self.quota.limit()
            && (self.quota).has_room(len, self.unexpected_bytes(peer), peers.saturating_sub(1))
    }

    /// Stores an unexpected message and returns its key.
    pub(crate) fn store(&mut self, kind: Kind, env: Envelope, message: UnexpectedMessage) -> usize {
        let is_partial = message.state == PayloadState::Partial;
        let key = self.unexpected.insert(message);
        if is_partial {
            self.count_bytes(key);
        }
        self.matcher(kind).store(env, key);
        key
    }

    /// Charges the bytes of a message to the quota and reserves memory for them.
    fn count_bytes(&mut self, key: usize) {
        let message = &mut self.unexpected[key];
        message.is_counted = true;
        message.bytes.reserve(message.len.min(FIRST_RESERVE));
        if message.peer >= self.unexpected_bytes.len() {
            self.unexpected_bytes.resize(message.peer + 1, 0);
        }
        let bytes = &mut self.unexpected_bytes[message.peer];
        self.quota.charge(message.len, bytes);
    }

    fn release_bytes(&mut self, message: &UnexpectedMessage) {
        if message.is_counted {
            let bytes = &mut self.unexpected_bytes[message.peer];
            self.quota.release(message.len, bytes);
        }
    }

    /// Appends bytes to a stored message.
    pub(crate) fn append(&mut self, key: usize, bytes: &[u8]) {
        if let Some(message) = self.unexpected.get_mut(key) {
            message.bytes.extend_from_slice(bytes);
        }
    }

    /// Marks a stored message as complete. Returns the acknowledgement number if the message is to
    /// be acknowledged now.
    pub(crate) fn complete(&mut self, key: usize) -> Option<u64> {
        let message = self.unexpected.get_mut(key)?;
        message.state = PayloadState::Complete;
        if message.acks_on_receive {
            None
        } else {
            message.number.take()
        }
    }

    /// Admits a held message if the quota now has room, and returns its length.
    pub(crate) fn admit(&mut self, key: usize, peers: usize) -> Option<usize> {
        let &UnexpectedMessage { peer, len, .. } = self.unexpected.get(key)?;
        if !self.has_room(peer, len, peers) {
            return None;
        }
        self.count_bytes(key);
        self.unexpected[key].state = PayloadState::Partial;
        Some(len)
    }

    /// Whether an unexpected RTS with this id arrived on a connection.
    pub(crate) fn has_rts(&self, connection: Id, id: u8) -> bool {
        let mut messages = self.unexpected.iter();
        messages.any(|(_, message)| {
            message.connection == connection && message.state == PayloadState::AtSender(id)
        })
    }

    /// Removes a stored message and releases its quota.
    pub(crate) fn take(&mut self, key: usize) -> UnexpectedMessage {
        let message = self.unexpected.remove(key);
        self.release_bytes(&message);
        message
    }

    /// Drops the incomplete messages of a connection that has ended. Claimed messages stay, and
    /// their claims fail.
    pub(crate) fn drop_connection(&mut self, connection: Id) {
        let mut dropped = Vec::new();
        for (key, message) in &mut self.unexpected {
            if message.connection == connection && message.state != PayloadState::Complete {
                message.state = PayloadState::Lost;
                dropped.push(key);
            }
        }
        for kind in [Kind::Msg, Kind::Tagged] {
            let matcher = self.matcher(kind);
            for (_, key) in matcher.drop_unexpected(|_, key| dropped.contains(key)) {
                self.take(key);
            }
        }
    }

    /// Writes receives, messages and quota to a telemetry snapshot.
    pub(crate) fn write_telemetry(&self, snapshot: &mut SnapshotWriter<'_>) {
        let matchers = [(Kind::Msg, &self.msgs), (Kind::Tagged, &self.tags)];
        let posted = matchers.iter().map(|(_, matcher)| matcher.posted_len());
        let unexpected = matchers.iter().map(|(_, matcher)| matcher.unexpected_len());
        snapshot.set_gauge(Gauge::Posted, posted.sum());
        snapshot.set_gauge(Gauge::Unexpected, unexpected.sum());
        snapshot.set_gauge(Gauge::UnexpectedBytes, self.quota.bytes());
        snapshot.set_gauge(Gauge::UnexpectedLimit, self.quota.limit());
        for (kind, matcher) in matchers {
            snapshot.add_posted(matcher.posted());
            snapshot.add_unexpected(kind, matcher.unexpected());
        }
    }
}

#[cfg(test)]
mod tests {
    use selvedge::Info;

    use super::*;

    const CONNECTION: Id = Id {
        index: 3,
        serial: 7,
    };

    fn matching(limit: usize) -> Matching {
        Matching::new(ReceivePolicy::new(&Info::default(), 0), limit)
    }

    /// Stores a tagged message of peer 0 and returns its key.
    fn store(matching: &mut Matching, tag: u64, state: PayloadState, len: usize) -> usize {
        let env = Envelope {
            src: Source(0),
            tag,
            len,
            data: 0,
            has_data: false,
        };
        matching.store(
            Kind::Tagged,
            env,
            UnexpectedMessage::new(CONNECTION, 0, state, len),
        )
    }

    #[test]
    fn a_held_message_is_admitted_when_another_is_taken() {
        let mut matching = matching(1 << 20);
        let first = store(&mut matching, 1, PayloadState::Partial, 1 << 20);
        assert!(matching.needs_peer(0) && !matching.has_room(0, 1 << 20, 1));
        let second = store(&mut matching, 2, PayloadState::Held, 1 << 20);
        assert_eq!(matching.admit(second, 1), None);
        matching.take(first);
        assert_eq!(matching.admit(second, 1), Some(1 << 20));
        assert!(matching.unexpected_bytes(0) >= 1 << 20);
        matching.take(second);
        assert_eq!(matching.unexpected_bytes(0), 0);
        assert!(
            !matching.has_room(0, (1 << 20) + 1, 1),
            "the message exceeds the quota"
        );
    }

    #[test]
    fn a_lost_connection_drops_its_incomplete_messages() {
        let mut matching = matching(1 << 20);
        let complete = store(&mut matching, 1, PayloadState::Partial, 8);
        assert_eq!(matching.complete(complete), None);
        store(&mut matching, 2, PayloadState::Partial, 8);
        store(&mut matching, 3, PayloadState::AtSender(1), 8);
        assert!(matching.has_rts(CONNECTION, 1) && !matching.has_rts(CONNECTION, 2));
        matching.drop_connection(Id {
            serial: 8,
            ..CONNECTION
        });
        assert_eq!(
            matching.tags.unexpected_len(),
            3,
            "the messages belong to another connection"
        );
        matching.drop_connection(CONNECTION);
        let remaining: Vec<_> = matching.tags.unexpected().map(|env| env.tag).collect();
        assert_eq!(remaining, [1]);
    }
}
