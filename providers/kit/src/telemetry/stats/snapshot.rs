//! Writes snapshots of an endpoint's queues and peers into its page. A sequence lock lets a reader
//! detect that it has copied parts of two snapshots.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::layout::{
    AT_GAUGES, AT_PEERS, AT_POSTED, AT_SEQ, AT_SNAPSHOT_TIME, AT_UNEXPECTED, MAX_PEERS, MAX_POSTED,
    MAX_UNEXPECTED, PEER_NAME, PEER_WORDS, POSTED_WORDS, PeerState, UNEXPECTED_WORDS, WORDS,
};
use super::super::seqlock;
use super::super::shared_words::write_text;
use crate::srx::{Envelope, Kind, Posted, Source};

/// A value that each snapshot measures anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Gauge {
    /// Number of posted receives.
    Posted,
    /// Number of unexpected messages.
    Unexpected,
    /// Memory of unexpected messages, in bytes.
    UnexpectedBytes,
    /// The limit of [`Self::UnexpectedBytes`].
    UnexpectedLimit,
    /// Number of operations of this endpoint that are not complete.
    Outstanding,
    /// Number of peers that are in the address vector or have connected.
    Peers,
    /// Number of completions that the application has not read.
    Unread,
}

impl Gauge {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Posted,
        Self::Unexpected,
        Self::UnexpectedBytes,
        Self::UnexpectedLimit,
        Self::Outstanding,
        Self::Peers,
        Self::Unread,
    ];
}

/// The state of one peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerSnapshot {
    /// The provider's index of the peer.
    pub index: u32,
    /// The state of the connection.
    pub state: PeerState,
    /// Number of operations that the peer has not acknowledged.
    pub outstanding: usize,
    /// Number of sends that wait for the connection.
    pub queued: usize,
    /// Number of the peer's large messages that no receive has matched.
    pub unmatched: usize,
    /// Number of the peer's large messages whose data is being transferred.
    pub transferring: usize,
    /// Memory of the peer's unexpected messages, in bytes.
    pub unexpected_bytes: usize,
    /// Whether the queue to the peer has no room for another message.
    pub is_full: bool,
}

/// Writes one snapshot into a page.
#[derive(Debug)]
pub struct SnapshotWriter<'a> {
    words: &'a [AtomicU64; WORDS],
    posted: usize,
    unexpected: usize,
    peers: usize,
}

impl SnapshotWriter<'_> {
    /// Number of peers that one snapshot has room for.
    pub const MAX_PEERS: usize = MAX_PEERS;

    /// Sets the value of a gauge.
    pub fn set_gauge(&mut self, gauge: Gauge, value: usize) {
        self.set(AT_GAUGES + gauge as usize, value as u64);
    }

    /// Adds posted receives, oldest first; leaves out those that do not fit.
    pub fn add_posted<'p>(&mut self, posted: impl Iterator<Item = &'p Posted>) {
        for posted in posted.take(MAX_POSTED - self.posted) {
            let at = AT_POSTED + self.posted * POSTED_WORDS;
            self.set(at, 1 | u64::from(posted.kind == Kind::Tagged) << 1);
            self.set(at + 1, source_word(posted.src));
            self.set(at + 2, posted.tag.tag);
            self.set(at + 3, posted.tag.ignore);
            self.set(at + 4, posted.buf.len() as u64);
            self.posted += 1;
        }
    }

    /// Adds unexpected messages of `kind`, oldest first; leaves out those that do not fit.
    pub fn add_unexpected<'e>(
        &mut self,
        kind: Kind,
        unexpected: impl Iterator<Item = &'e Envelope>,
    ) {
        for env in unexpected.take(MAX_UNEXPECTED - self.unexpected) {
            let at = AT_UNEXPECTED + self.unexpected * UNEXPECTED_WORDS;
            self.set(at, 1 | u64::from(kind == Kind::Tagged) << 1);
            self.set(at + 1, source_word(env.src));
            self.set(at + 2, env.tag);
            self.set(at + 3, env.len as u64);
            self.unexpected += 1;
        }
    }

    /// Adds a peer, if there is room.
    pub fn add_peer(&mut self, name: &str, peer: &PeerSnapshot) {
        if self.peers == MAX_PEERS {
            return;
        }
        let at = AT_PEERS + self.peers * PEER_WORDS;
        self.set(at, 1 + u64::from(peer.index));
        self.set(at + 1, peer.state as u64 | u64::from(peer.is_full) << 8);
        self.set(at + 2, peer.outstanding as u64);
        self.set(at + 3, peer.queued as u64);
        self.set(at + 4, peer.unmatched as u64);
        self.set(at + 5, peer.transferring as u64);
        self.set(at + 6, peer.unexpected_bytes as u64);
        write_text(&self.words[at + PEER_NAME..at + PEER_WORDS], name);
        self.peers += 1;
    }

    fn finish(mut self) {
        while self.posted < MAX_POSTED {
            self.set(AT_POSTED + self.posted * POSTED_WORDS, 0);
            self.posted += 1;
        }
        while self.unexpected < MAX_UNEXPECTED {
            self.set(AT_UNEXPECTED + self.unexpected * UNEXPECTED_WORDS, 0);
            self.unexpected += 1;
        }
        while self.peers < MAX_PEERS {
            self.set(AT_PEERS + self.peers * PEER_WORDS, 0);
            self.peers += 1;
        }
    }

    fn set(&self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Relaxed);
    }
}

fn source_word(src: Source) -> u64 {
    u64::from(src.0)
}

pub(super) fn write(
    words: &[AtomicU64; WORDS],
    now: u64,
    fill: impl FnOnce(&mut SnapshotWriter<'_>),
) {
    let odd = seqlock::begin_write(&words[..], AT_SEQ);
    words[AT_SNAPSHOT_TIME].store(now, Ordering::Relaxed);
    let mut snapshot = SnapshotWriter {
        words,
        posted: 0,
        unexpected: 0,
        peers: 0,
    };
    fill(&mut snapshot);
    snapshot.finish();
    seqlock::end_write(&words[..], AT_SEQ, odd);
}
