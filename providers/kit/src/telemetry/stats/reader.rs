//! The contents of a [`StatsPage`](super::StatsPage) as a reader sees them. The writer is not
//! trusted: entries with invalid values are left out.

use std::sync::atomic::Ordering;

use super::super::layout::{
    AT_GAUGES, AT_MAGIC, AT_OP_COUNTERS, AT_PEERS, AT_POSTED, AT_PROTOCOL_COUNTERS, AT_SEQ,
    AT_SNAPSHOT_TIME, AT_UNEXPECTED, MAX_PEERS, MAX_POSTED, MAX_UNEXPECTED, OpCounter, PEER_NAME,
    PEER_WORDS, POSTED_WORDS, PageKind, PeerState, ProtocolCounter, UNEXPECTED_WORDS, WORDS,
};
use super::super::page_copy::{PageHeader, copy_consistent, read_text};
use super::super::seqlock::Words;
use super::flight::{self, Event};
use super::snapshot::Gauge;
use crate::srx::Source;

/// The counters, the last snapshot and the last events of an endpoint.
#[derive(Clone, Debug)]
pub struct Stats {
    /// The process ID.
    pub pid: u32,
    /// The provider's name.
    pub provider: String,
    /// The endpoint's name.
    pub name: String,
    /// The time at which the endpoint was opened, in nanoseconds of the system's monotonic clock.
    pub opened: u64,
    /// The time of the endpoint's last snapshot on the same clock; 0 if there was none.
    pub snapshot_time: u64,
    /// Whether the following fields are from one snapshot.
    pub is_consistent: bool,
    op_counters: [(u64, u64); OpCounter::ALL.len()],
    protocol_counters: [(u64, u64); ProtocolCounter::ALL.len()],
    gauges: [u64; Gauge::ALL.len()],
    /// The oldest posted receives.
    pub posted: Vec<PostedReceive>,
    /// The oldest unexpected messages.
    pub unexpected: Vec<UnexpectedMessage>,
    /// The peers, as many as the page has room for.
    pub peers: Vec<PeerStats>,
    /// The last events, oldest first.
    pub events: Vec<Event>,
}

/// The peer that a receive or a message names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePeer {
    /// Any peer, or a peer that has no index.
    Any,
    /// The peer with this index.
    Index(u32),
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub struct PostedReceive {
    /// Whether the receive takes tagged messages.
    pub is_tagged: bool,
    /// The peer whose messages the receive takes.
    pub from: SourcePeer,
    /// The tag that the receive takes.
    pub tag: u64,
    /// Bits of the tag that matching ignores.
    pub ignore: u64,
    /// The length in bytes.
    pub len: u64,
}

/// An unexpected message: it was received before a matching receive was posted.
#[derive(Clone, Copy, Debug)]
pub struct UnexpectedMessage {
    /// Whether the message has a tag.
    pub is_tagged: bool,
    /// The sender.
    pub from: SourcePeer,
    /// The tag.
    pub tag: u64,
    /// The length in bytes.
    pub len: u64,
}

/// The state of one peer.
#[derive(Clone, Debug)]
pub struct PeerStats {
    /// The index by which receives and messages name the peer.
    pub index: u32,
    /// The peer's name.
    pub name: String,
    /// The state of the connection.
    pub state: PeerState,
    /// The number of operations that the peer has not acknowledged.
    pub outstanding: u64,
    /// The number of sends that wait for the connection.
    pub queued: u64,
    /// The number of the peer's large messages that no receive has matched.
    pub unmatched: u64,
    /// The number of the peer's large messages whose data is being transferred.
    pub transferring: u64,
    /// The memory of the peer's unexpected messages, in bytes.
    pub unexpected_bytes: u64,
    /// Whether the peer's queue has no room for another message.
    pub is_full: bool,
}

impl Stats {
    /// Reads a page; `copy` copies all of it. `None` for a page of another kind or version.
    pub fn read<W: Words + ?Sized>(
        page: &W,
        copy: impl FnMut() -> Option<Box<[u64; WORDS]>>,
    ) -> Option<Self> {
        if page.load(AT_MAGIC, Ordering::Acquire) != PageKind::Stats.magic() {
            return None;
        }
        let (words, is_consistent) = copy_consistent(page, AT_SEQ, copy)?;
        Self::parse(&words).map(|stats| Self {
            is_consistent: is_consistent && stats.is_consistent,
            ..stats
        })
    }

    /// Reads the copy of a page, for instance one that a crash wrote out.
    pub fn parse(words: &[u64; WORDS]) -> Option<Self> {
        let header = PageHeader::parse(PageKind::Stats, words)?;
        let pair = |index: usize| (words[index], words[index + 1]);
        Some(Self {
            pid: header.pid,
            provider: header.provider,
            name: header.name,
            opened: header.opened,
            snapshot_time: words[AT_SNAPSHOT_TIME],
            is_consistent: words[AT_SEQ].is_multiple_of(2),
            op_counters: std::array::from_fn(|index| pair(AT_OP_COUNTERS + 2 * index)),
            protocol_counters: std::array::from_fn(|index| pair(AT_PROTOCOL_COUNTERS + 2 * index)),
            gauges: std::array::from_fn(|index| words[AT_GAUGES + index]),
            posted: entries(words, AT_POSTED, POSTED_WORDS, MAX_POSTED, posted_receive),
            unexpected: entries(
                words,
                AT_UNEXPECTED,
                UNEXPECTED_WORDS,
                MAX_UNEXPECTED,
                unexpected_message,
            ),
            peers: entries(words, AT_PEERS, PEER_WORDS, MAX_PEERS, peer_stats),
            events: flight::read(words),
        })
    }

    /// The number of operations, and their bytes.
    pub fn op_counter(&self, op: OpCounter) -> (u64, u64) {
        self.op_counters[op as usize]
    }

    /// The number of messages that a protocol carried, and their bytes.
    pub fn protocol_counter(&self, counter: ProtocolCounter) -> (u64, u64) {
        self.protocol_counters[counter as usize]
    }

    /// The number of messages that the provider's default protocol carried, and their bytes: the
    /// messages that no [`ProtocolCounter`] counts.
    pub fn default_protocol_counter(&self, is_sent: bool) -> (u64, u64) {
        let all = self.op_counter(if is_sent {
            OpCounter::Sent
        } else {
            OpCounter::Received
        });
        let others = ProtocolCounter::ALL
            .into_iter()
            .filter(|counter| counter.is_sent() == is_sent);
        others
            .map(|counter| self.protocol_counter(counter))
            .fold(all, |rest, other| {
                (
                    rest.0.saturating_sub(other.0),
                    rest.1.saturating_sub(other.1),
                )
            })
    }

    /// The value of a gauge.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize]
    }
}

fn entries<T>(
    words: &[u64; WORDS],
    offset: usize,
    len: usize,
    max: usize,
    parse: impl Fn(&[u64]) -> Option<T>,
) -> Vec<T> {
    let entries = words[offset..offset + len * max].chunks(len);
    entries
        .filter(|words| words[0] != 0)
        .filter_map(parse)
        .collect()
}

fn posted_receive(words: &[u64]) -> Option<PostedReceive> {
    Some(PostedReceive {
        is_tagged: words[0] & 2 != 0,
        from: source_peer(words[1])?,
        tag: words[2],
        ignore: words[3],
        len: words[4],
    })
}

fn unexpected_message(words: &[u64]) -> Option<UnexpectedMessage> {
    Some(UnexpectedMessage {
        is_tagged: words[0] & 2 != 0,
        from: source_peer(words[1])?,
        tag: words[2],
        len: words[3],
    })
}

fn source_peer(word: u64) -> Option<SourcePeer> {
    let index = u32::try_from(word).ok()?;
    Some(if Source(index) == Source::ANY {
        SourcePeer::Any
    } else {
        SourcePeer::Index(index)
    })
}

fn peer_stats(words: &[u64]) -> Option<PeerStats> {
    Some(PeerStats {
        index: u32::try_from(words[0] - 1).ok()?,
        name: read_text(&words[PEER_NAME..]),
        state: *PeerState::ALL.get((words[1] & 0xff) as usize)?,
        outstanding: words[2],
        queued: words[3],
        unmatched: words[4],
        transferring: words[5],
        unexpected_bytes: words[6],
        is_full: words[1] & 0x100 != 0,
    })
}
