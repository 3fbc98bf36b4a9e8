//! `Matching`: receives that wait for messages, and messages that wait for receives.
//!
//! A message counts as arrived with its header, and takes its place among those that wait at once. Its
//! bytes may still be on the way then ([`Where::Coming`]), or there is no room for them and they stay
//! in the kernel and with the sender ([`Where::Held`]), or the sender offers them ([`Where::Offered`]).

use std::sync::Arc;

use selvedge_kit::srx::{
    Envelope, Kind, Matcher, Posted, ReceivePolicy, Shared, Source, UnexpectedQuota,
};
use selvedge_kit::telemetry::{Gauge, SnapshotWriter};
use slab::Slab;

use crate::connection::Id;

/// Memory for bytes that are announced, until they come.
const FIRST: usize = 64 << 10;

/// The receives and messages of an endpoint that wait.
#[derive(Debug)]
pub(crate) struct Matching {
    msgs: Matcher<usize>,
    tags: Matcher<usize>,
    pub(crate) policy: ReceivePolicy,
    quota: UnexpectedQuota,
    /// Bytes of each peer's messages that wait, as the quota counts them.
    bytes_of: Vec<usize>,
    /// The messages that wait, by the key that the matchers know them by.
    kept: Slab<Kept>,
}

/// A message that waits for its receive.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) place: Where,
    pub(crate) bytes: Vec<u8>,
    /// Its number, if the sender wants to know when it is received.
    pub(crate) number: Option<u64>,
    pub(crate) peer: usize,
    /// The connection that it came by.
    pub(crate) from: Id,
    pub(crate) len: usize,
    /// Whether it takes of the quota.
    counts: bool,
    /// The sender's wish is about its receive; otherwise about its arrival here.
    pub(crate) is_answered_by_receive: bool,
}

/// Where the bytes of a message are that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Here, whole.
    Here,
    /// Here in part.
    Coming,
    /// In the kernel and with the sender: its connection waits until there is room for it.
    Held,
    /// With the sender, under this number.
    Offered(u8),
    /// Gone with the sender.
    Lost,
}

impl Kept {
    /// A message of `len` bytes that has come by a connection with a peer.
    pub(crate) fn new(from: Id, peer: usize, place: Where, len: usize) -> Self {
        Self {
            place,
            bytes: Vec::new(),
            number: None,
            peer,
            from,
            len,
            counts: false,
            is_answered_by_receive: true,
        }
    }
}

impl Matching {
    /// Nothing waits yet; messages of `limit` bytes may.
    pub(crate) fn new(policy: ReceivePolicy, limit: usize) -> Self {
        Self {
            msgs: Matcher::new(),
            tags: Matcher::new(),
            policy,
            quota: UnexpectedQuota::new(limit),
            bytes_of: Vec::new(),
            kept: Slab::new(),
        }
    }

    /// Has messages meet shared receives, where there are none of its own for them.
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

    /// Takes the posted receives that `take` takes of either interface.
    pub(crate) fn take_posted(
        &mut self,
        mut take: impl FnMut(&mut Matcher<usize>) -> Vec<Posted>,
    ) -> Vec<Posted> {
        let mut taken = take(&mut self.msgs);
        taken.extend(take(&mut self.tags));
        taken
    }

    /// Whether a peer's message waits for its receive, or a receive for that peer.
    pub(crate) fn needs(&mut self, peer: usize) -> bool {
        let source = Source(peer as u32);
        self.bytes_of(peer) > 0
            || [&mut self.msgs, &mut self.tags]
                .into_iter()
                .any(|matcher| matcher.has_from(source) || matcher.awaits(source))
    }

    /// Bytes of a peer's messages that wait, as the quota counts them.
    pub(crate) fn bytes_of(&self, peer: usize) -> usize {
        self.bytes_of.get(peer).copied().unwrap_or(0)
    }

    /// Whether a message of one of `peers` peers may wait here. One that is larger than all that may
    /// be kept never does.
    pub(crate) fn has_room(&self, peer: usize, len: usize, peers: usize) -> bool {
        len <= self.quota.limit()
            && (self.quota).has_room(len, self.bytes_of(peer), peers.saturating_sub(1))
    }

    /// Has a message wait for its receive. Its key.
    pub(crate) fn keep(&mut self, kind: Kind, env: Envelope, kept: Kept) -> usize {
        let is_coming = kept.place == Where::Coming;
        let key = self.kept.insert(kept);
        if is_coming {
            self.count(key);
        }
        self.matcher(kind).store(env, key);
        key
    }

    /// The bytes of a message will be here.
    fn count(&mut self, key: usize) {
        let kept = &mut self.kept[key];
        kept.counts = true;
        kept.bytes.reserve(kept.len.min(FIRST));
        if kept.peer >= self.bytes_of.len() {
            self.bytes_of.resize(kept.peer + 1, 0);
        }
        let bytes = &mut self.bytes_of[kept.peer];
        self.quota.charge(kept.len, bytes);
    }

    fn free(&mut self, kept: &Kept) {
        if kept.counts {
            let bytes = &mut self.bytes_of[kept.peer];
            self.quota.release(kept.len, bytes);
        }
    }

    /// More of a message that is kept.
    pub(crate) fn keep_more(&mut self, key: usize, bytes: &[u8]) {
        if let Some(kept) = self.kept.get_mut(key) {
            kept.bytes.extend_from_slice(bytes);
        }
    }

    /// A message that is kept is here. Its number, if the sender wants to know that.
    pub(crate) fn kept_whole(&mut self, key: usize) -> Option<u64> {
        let kept = self.kept.get_mut(key)?;
        kept.place = Where::Here;
        match kept.is_answered_by_receive {
            true => None,
            false => kept.number.take(),
        }
    }

    /// The length of a message that had no room, if it has by now: its bytes may come.
    pub(crate) fn admit(&mut self, key: usize, peers: usize) -> Option<usize> {
        let &Kept { peer, len, .. } = self.kept.get(key)?;
        if !self.has_room(peer, len, peers) {
            return None;
        }
        self.count(key);
        self.kept[key].place = Where::Coming;
        Some(len)
    }

    /// Whether the peer of a connection offers a message under this number.
    pub(crate) fn is_offered(&self, from: Id, id: u8) -> bool {
        let mut kept = self.kept.iter();
        kept.any(|(_, kept)| kept.from == from && kept.place == Where::Offered(id))
    }

    /// Takes a message that does not wait any more.
    pub(crate) fn take(&mut self, key: usize) -> Kept {
        let kept = self.kept.remove(key);
        self.free(&kept);
        kept
    }

    /// A connection has ended: forgets what it had not brought. Claimed messages stay, and the claim
    /// fails.
    pub(crate) fn lose(&mut self, from: Id) {
        let mut lost = Vec::new();
        for (key, kept) in &mut self.kept {
            if kept.from == from && kept.place != Where::Here {
                kept.place = Where::Lost;
                lost.push(key);
            }
        }
        for kind in [Kind::Msg, Kind::Tagged] {
            let matcher = self.matcher(kind);
            for (_, key) in matcher.drop_unexpected(|_, key| lost.contains(key)) {
                self.take(key);
            }
        }
    }

    /// Writes down what waits.
    pub(crate) fn show(&self, snapshot: &mut SnapshotWriter<'_>) {
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

    const CONNECTION: Id = Id { at: 3, serial: 7 };

    fn matching(limit: usize) -> Matching {
        Matching::new(ReceivePolicy::new(&Info::default(), 0), limit)
    }

    /// Has a tagged message of peer 0 wait; its key.
    fn keep(matching: &mut Matching, tag: u64, place: Where, len: usize) -> usize {
        let env = Envelope {
            src: Source(0),
            tag,
            len,
            data: 0,
            has_data: false,
        };
        matching.keep(Kind::Tagged, env, Kept::new(CONNECTION, 0, place, len))
    }

    #[test]
    fn a_message_without_room_may_come_when_another_is_taken() {
        let mut matching = matching(1 << 20);
        let first = keep(&mut matching, 1, Where::Coming, 1 << 20);
        assert!(matching.needs(0) && !matching.has_room(0, 1 << 20, 1));
        let second = keep(&mut matching, 2, Where::Held, 1 << 20);
        assert_eq!(matching.admit(second, 1), None);
        matching.take(first);
        assert_eq!(matching.admit(second, 1), Some(1 << 20));
        assert!(matching.bytes_of(0) >= 1 << 20);
        matching.take(second);
        assert_eq!(matching.bytes_of(0), 0);
        assert!(!matching.has_room(0, (1 << 20) + 1, 1), "it never has room");
    }

    #[test]
    fn a_connection_takes_along_what_it_has_not_brought() {
        let mut matching = matching(1 << 20);
        let here = keep(&mut matching, 1, Where::Coming, 8);
        assert_eq!(matching.kept_whole(here), None);
        keep(&mut matching, 2, Where::Coming, 8);
        keep(&mut matching, 3, Where::Offered(1), 8);
        assert!(matching.is_offered(CONNECTION, 1) && !matching.is_offered(CONNECTION, 2));
        matching.lose(Id {
            serial: 8,
            ..CONNECTION
        });
        assert_eq!(
            matching.tags.unexpected_len(),
            3,
            "it was another connection"
        );
        matching.lose(CONNECTION);
        let left: Vec<_> = matching.tags.unexpected().map(|env| env.tag).collect();
        assert_eq!(left, [1]);
    }
}
