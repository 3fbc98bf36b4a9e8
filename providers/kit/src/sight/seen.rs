//! A page, as somebody else reads it. Its owner may have written anything: what makes no sense is
//! left out.

use std::sync::atomic::Ordering;

use super::flight::{self, Event};
use super::layout::{
    AT_GAUGES, AT_KEPT, AT_LOOKED, AT_MAGIC, AT_NAME, AT_OPENED, AT_PEERS, AT_PID, AT_PROVIDER,
    AT_SEQ, AT_TALLIES, AT_VERSION, AT_WAITS, AT_WAYS, KEPT, KEPT_WORDS, Kind, NAME_WORDS,
    PEER_NAME, PEER_WORDS, PEERS, PROVIDER_WORDS, PeerState, Tally, VERSION, WAIT_WORDS, WAITS,
    WORDS, Way,
};
use super::seq::{self, Words};
use super::standing::Gauge;
use crate::srx::Source;

/// How often a page is copied anew because its owner wrote to it meanwhile.
const TRIES: usize = 64;

/// Whose sheet it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The process.
    pub pid: u32,
    /// The provider's name.
    pub provider: String,
    /// The endpoint's.
    pub name: String,
    /// When it was opened, on the system's monotonic clock, in nanoseconds.
    pub opened: u64,
}

impl Head {
    /// Reads the beginning of a sheet. `None` for what is none of this kind and version.
    pub(super) fn of(kind: Kind, words: &[u64]) -> Option<Self> {
        if words[AT_MAGIC] != kind.magic() || words[AT_VERSION] != VERSION {
            return None;
        }
        Some(Self {
            pid: u32::try_from(words[AT_PID]).ok()?,
            provider: text(&words[AT_PROVIDER..AT_PROVIDER + PROVIDER_WORDS]),
            name: text(&words[AT_NAME..AT_NAME + NAME_WORDS]),
            opened: words[AT_OPENED],
        })
    }
}

/// What a page says.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Whose process it is.
    pub pid: u32,
    /// The provider's name.
    pub provider: String,
    /// The endpoint's.
    pub name: String,
    /// When it was opened, on the system's monotonic clock, in nanoseconds.
    pub opened: u64,
    /// When it last looked after itself, likewise; 0 if it never did.
    pub looked: u64,
    /// Whether what follows is of one moment.
    pub is_whole: bool,
    tallies: [(u64, u64); Tally::ALL.len()],
    ways: [(u64, u64); Way::ALL.len()],
    gauges: [u64; Gauge::ALL.len()],
    /// Receives that wait, the oldest of them.
    pub waits: Vec<Wait>,
    /// Messages that wait for receives, likewise.
    pub kept: Vec<KeptMessage>,
    /// Peers; some of them, if there are many.
    pub peers: Vec<SeenPeer>,
    /// The last events, oldest first.
    pub events: Vec<Event>,
}

/// Whose messages something is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directed {
    /// Any peer's.
    Any,
    /// Those of the peer with this number.
    To(u32),
}

/// A receive that waits.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Whether it is for tagged messages.
    pub is_tagged: bool,
    /// Whose messages it takes.
    pub from: Directed,
    /// The tag that it takes.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// Its bytes.
    pub len: u64,
}

/// A message that waits for a receive.
#[derive(Clone, Copy, Debug)]
pub struct KeptMessage {
    /// Whether it has a tag.
    pub is_tagged: bool,
    /// Who sent it.
    pub from: Directed,
    /// Its tag.
    pub tag: u64,
    /// Its bytes.
    pub len: u64,
}

/// A peer.
#[derive(Clone, Debug)]
pub struct SeenPeer {
    /// The number by which receives and messages name it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// How far the two are.
    pub state: PeerState,
    /// Operations that it has not answered.
    pub unanswered: u64,
    /// Sends that wait for it to be there.
    pub held: u64,
    /// Its large messages that no receive has met.
    pub offered: u64,
    /// Its large messages on their way into receives.
    pub moving: u64,
    /// Memory of its messages that wait for receives, in bytes.
    pub kept: u64,
    /// Whether there is no room for another message to it.
    pub is_full: bool,
}

impl Seen {
    /// Reads a page; `copy` copies all of it. `None` for what is no page of this version.
    pub fn read<W: Words + ?Sized>(
        page: &W,
        copy: impl FnMut() -> Option<Box<[u64; WORDS]>>,
    ) -> Option<Self> {
        if page.load(AT_MAGIC, Ordering::Acquire) != Kind::Standing.magic() {
            return None;
        }
        let (words, is_whole) = one_version(page, AT_SEQ, copy)?;
        Self::of(&words).map(|seen| Self {
            is_whole: is_whole && seen.is_whole,
            ..seen
        })
    }

    /// Reads the copy of a page, written out by a crash for instance.
    pub fn of(words: &[u64; WORDS]) -> Option<Self> {
        let head = Head::of(Kind::Standing, words)?;
        let pair = |at: usize| (words[at], words[at + 1]);
        Some(Self {
            pid: head.pid,
            provider: head.provider,
            name: head.name,
            opened: head.opened,
            looked: words[AT_LOOKED],
            is_whole: words[AT_SEQ].is_multiple_of(2),
            tallies: std::array::from_fn(|at| pair(AT_TALLIES + 2 * at)),
            ways: std::array::from_fn(|at| pair(AT_WAYS + 2 * at)),
            gauges: std::array::from_fn(|at| words[AT_GAUGES + at]),
            waits: rows(words, AT_WAITS, WAIT_WORDS, WAITS, wait),
            kept: rows(words, AT_KEPT, KEPT_WORDS, KEPT, kept),
            peers: rows(words, AT_PEERS, PEER_WORDS, PEERS, peer),
            events: flight::read(words),
        })
    }

    /// How many operations there were, and their bytes.
    pub fn tally(&self, what: Tally) -> (u64, u64) {
        self.tallies[what as usize]
    }

    /// How many messages took a way, and their bytes.
    pub fn way(&self, way: Way) -> (u64, u64) {
        self.ways[way as usize]
    }

    /// Messages that took the provider's plain way, and their bytes: those that no other was counted
    /// for.
    pub fn plain(&self, is_sent: bool) -> (u64, u64) {
        let all = self.tally(match is_sent {
            true => Tally::Sent,
            false => Tally::Received,
        });
        let others = Way::ALL.into_iter().filter(|way| way.is_sent() == is_sent);
        others.map(|way| self.way(way)).fold(all, |rest, other| {
            (
                rest.0.saturating_sub(other.0),
                rest.1.saturating_sub(other.1),
            )
        })
    }

    /// How much there is of something.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges[gauge as usize]
    }
}

/// A copy of one version of what stands behind the number at `seq`, and whether it is one: its owner
/// may have been stopped, or died, in the middle.
pub(super) fn one_version<W: Words + ?Sized, const N: usize>(
    sheet: &W,
    seq: usize,
    mut copy: impl FnMut() -> Option<Box<[u64; N]>>,
) -> Option<(Box<[u64; N]>, bool)> {
    for _ in 0..TRIES {
        let Some(number) = seq::version(sheet, seq) else {
            std::thread::yield_now();
            continue;
        };
        let words = copy()?;
        if seq::is_same(sheet, seq, number) {
            return Some((words, true));
        }
    }
    Some((copy()?, false))
}

fn rows<T>(
    words: &[u64; WORDS],
    at: usize,
    len: usize,
    most: usize,
    row: impl Fn(&[u64]) -> Option<T>,
) -> Vec<T> {
    let rows = words[at..at + len * most].chunks(len);
    rows.filter(|words| words[0] != 0).filter_map(row).collect()
}

fn wait(words: &[u64]) -> Option<Wait> {
    Some(Wait {
        is_tagged: words[0] & 2 != 0,
        from: directed(words[1])?,
        tag: words[2],
        ignore: words[3],
        len: words[4],
    })
}

fn kept(words: &[u64]) -> Option<KeptMessage> {
    Some(KeptMessage {
        is_tagged: words[0] & 2 != 0,
        from: directed(words[1])?,
        tag: words[2],
        len: words[3],
    })
}

fn directed(word: u64) -> Option<Directed> {
    let index = u32::try_from(word).ok()?;
    Some(match Source(index) == Source::ANY {
        true => Directed::Any,
        false => Directed::To(index),
    })
}

fn peer(words: &[u64]) -> Option<SeenPeer> {
    Some(SeenPeer {
        index: u32::try_from(words[0] - 1).ok()?,
        name: text(&words[PEER_NAME..]),
        state: *PeerState::ALL.get((words[1] & 0xff) as usize)?,
        unanswered: words[2],
        held: words[3],
        offered: words[4],
        moving: words[5],
        kept: words[6],
        is_full: words[1] & 0x100 != 0,
    })
}

/// The text in some words. What a terminal would take for a command is left out.
pub(super) fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
    text.chars().filter(|char| !char.is_control()).collect()
}
