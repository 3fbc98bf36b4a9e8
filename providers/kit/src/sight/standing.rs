//! How things stand with an endpoint, written down now and then as one version.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{
    AT_GAUGES, AT_KEPT, AT_LOOKED, AT_PEERS, AT_SEQ, AT_WAITS, KEPT, KEPT_WORDS, PEER_NAME,
    PEER_WORDS, PEERS, PeerState, WAIT_WORDS, WAITS, WORDS,
};
use super::seq;
use super::sheet::put_text;
use crate::srx::{Envelope, Kind, Posted, Source};

/// Something that is counted anew each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Gauge {
    /// Receives that wait for messages.
    Posted,
    /// Messages that wait for receives.
    Unexpected,
    /// Memory of those, in bytes.
    UnexpectedBytes,
    /// How much that may be.
    UnexpectedLimit,
    /// Own operations that are not complete.
    Outstanding,
    /// Peers that were named or met.
    Peers,
    /// Completions that nobody has read.
    Unread,
}

impl Gauge {
    /// All of them, in their order.
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

/// What stands with one peer.
#[derive(Clone, Copy, Debug)]
pub struct PeerStanding {
    /// The provider's number for it.
    pub index: u32,
    /// How far the two are.
    pub state: PeerState,
    /// Operations that it has not answered.
    pub unanswered: usize,
    /// Sends that wait for it to be there.
    pub held: usize,
    /// Its large messages that no receive has met.
    pub offered: usize,
    /// Its large messages on their way into receives.
    pub moving: usize,
    /// Memory of its messages that wait for receives, in bytes.
    pub kept: usize,
    /// Whether there is no room for another message to it.
    pub is_full: bool,
}

/// The version that is being written.
#[derive(Debug)]
pub struct Standing<'a> {
    words: &'a [AtomicU64; WORDS],
    waits: usize,
    kept: usize,
    peers: usize,
}

impl Standing<'_> {
    /// Peers that one version has room for.
    pub const PEERS: usize = PEERS;

    /// Says how much there is of something.
    pub fn gauge(&mut self, gauge: Gauge, value: usize) {
        self.set(AT_GAUGES + gauge as usize, value as u64);
    }

    /// Names receives that wait, oldest first; those that have no room are left out.
    pub fn waits<'p>(&mut self, posted: impl Iterator<Item = &'p Posted>) {
        for posted in posted.take(WAITS - self.waits) {
            let at = AT_WAITS + self.waits * WAIT_WORDS;
            self.set(at, 1 | u64::from(posted.kind == Kind::Tagged) << 1);
            self.set(at + 1, source(posted.src));
            self.set(at + 2, posted.tag.tag);
            self.set(at + 3, posted.tag.ignore);
            self.set(at + 4, posted.buf.len() as u64);
            self.waits += 1;
        }
    }

    /// Names messages that wait, likewise.
    pub fn kept<'e>(&mut self, kind: Kind, kept: impl Iterator<Item = &'e Envelope>) {
        for env in kept.take(KEPT - self.kept) {
            let at = AT_KEPT + self.kept * KEPT_WORDS;
            self.set(at, 1 | u64::from(kind == Kind::Tagged) << 1);
            self.set(at + 1, source(env.src));
            self.set(at + 2, env.tag);
            self.set(at + 3, env.len as u64);
            self.kept += 1;
        }
    }

    /// Adds a peer, if there is room.
    pub fn peer(&mut self, name: &str, peer: &PeerStanding) {
        if self.peers == PEERS {
            return;
        }
        let at = AT_PEERS + self.peers * PEER_WORDS;
        self.set(at, 1 + u64::from(peer.index));
        self.set(at + 1, peer.state as u64 | u64::from(peer.is_full) << 8);
        self.set(at + 2, peer.unanswered as u64);
        self.set(at + 3, peer.held as u64);
        self.set(at + 4, peer.offered as u64);
        self.set(at + 5, peer.moving as u64);
        self.set(at + 6, peer.kept as u64);
        put_text(&self.words[at + PEER_NAME..at + PEER_WORDS], name);
        self.peers += 1;
    }

    fn finish(mut self) {
        while self.waits < WAITS {
            self.set(AT_WAITS + self.waits * WAIT_WORDS, 0);
            self.waits += 1;
        }
        while self.kept < KEPT {
            self.set(AT_KEPT + self.kept * KEPT_WORDS, 0);
            self.kept += 1;
        }
        while self.peers < PEERS {
            self.set(AT_PEERS + self.peers * PEER_WORDS, 0);
            self.peers += 1;
        }
    }

    fn set(&self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Relaxed);
    }
}

fn source(src: Source) -> u64 {
    u64::from(src.0)
}

pub(super) fn write(words: &[AtomicU64; WORDS], now: u64, tell: impl FnOnce(&mut Standing<'_>)) {
    let odd = seq::begin(&words[..], AT_SEQ);
    words[AT_LOOKED].store(now, Ordering::Relaxed);
    let mut standing = Standing {
        words,
        waits: 0,
        kept: 0,
        peers: 0,
    };
    tell(&mut standing);
    standing.finish();
    seq::end(&words[..], AT_SEQ, odd);
}
