//! Lanes: a provider's own way for messages of few bytes between two members, beside the tagged
//! messages of its endpoint.
//!
//! A message on a lane is a [`Letter`]: it is there as soon as it is put, needs no receive, and
//! nobody reports its end. The layer looks at the lanes on which it waits for something. If a
//! provider has lanes, all its endpoints with collectives have one to each other in each direction,
//! so that both ends of a message know by its length which way it goes.

use std::fmt;
use std::sync::Arc;

use selvedge::shared::SharedBytes;
use selvedge::{Errno, FiAddr, Result};

use super::group::Failure;

/// The most bytes of a letter.
pub const MOST: usize = 48;
/// Letters of one lane that may wait for their collective to begin here; the others wait with their
/// sender.
const MOST_EARLY: usize = 1 << 16;

/// A message of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Letter {
    /// Which one.
    pub tag: u64,
    /// Bytes of it, [`MOST`] at most.
    pub len: usize,
    /// The bytes as they lie in memory; those behind the end mean nothing.
    pub words: [u64; MOST / 8],
}

impl Letter {
    /// One with nothing but zeros.
    #[inline]
    pub const fn new(tag: u64, len: usize) -> Self {
        Self {
            tag,
            len,
            words: [0; MOST / 8],
        }
    }

    /// One with one word.
    #[inline]
    pub(super) const fn word(tag: u64, word: u64) -> Self {
        let mut letter = Self::new(tag, 8);
        letter.words[0] = word;
        letter
    }

    /// One with these bytes.
    ///
    /// # Panics
    /// When they are more than fit.
    #[inline]
    pub(super) fn with(tag: u64, part: SharedBytes) -> Self {
        if part.len() == 8 {
            let mut bytes = [0; 8];
            part.read_into(&mut bytes);
            return Self::word(tag, u64::from_ne_bytes(bytes));
        }
        let mut letter = Self::new(tag, part.len());
        let mut bytes = [0; MOST];
        part.read_into(&mut bytes[..part.len()]);
        for (word, bytes) in letter.words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight of them"));
        }
        letter
    }

    /// Writes the bytes to where they belong, which are as many.
    #[inline]
    pub(super) fn write(&self, to: SharedBytes) {
        if self.len == 8 {
            return to.write(&self.words[0].to_ne_bytes());
        }
        let mut bytes = [0; MOST];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        to.write(&bytes[..self.len]);
    }
}

/// The lanes between an endpoint and one life of a peer: one in each direction.
pub trait Lane: fmt::Debug + Send + Sync {
    /// Puts a letter, and says whether the peer may have to be woken ([`Lanes::wake`]).
    ///
    /// # Errors
    /// [`Errno::Again`] while the peer has not made room; [`Errno::Proto`] if it breaks the rules.
    fn put(&mut self, letter: &Letter) -> Result<bool>;

    /// The oldest letter of the peer, which has no more than [`MOST`] bytes. What else it says is the
    /// peer's word.
    ///
    /// # Errors
    /// [`Errno::Proto`] if it breaks the rules.
    fn take(&mut self) -> Result<Option<Letter>>;
}

/// What a provider's endpoint has for lanes.
pub trait Lanes: fmt::Debug + Send + Sync {
    /// The number of a peer's life, which no other life of any peer has.
    ///
    /// # Errors
    /// [`Errno::NotConn`] for a peer with which no messages were exchanged in this life.
    fn life(&self, peer: FiAddr) -> Result<u64>;

    /// The lanes to a life of a peer, which are opened once.
    ///
    /// # Errors
    /// [`Errno::NotConn`] if it is over.
    fn open(&self, life: u64) -> Result<Box<dyn Lane>>;

    /// Wakes a peer that sleeps, after something was put into its lane.
    fn wake(&self, life: u64);

    /// Believes a peer that breaks the rules no more: its life ends.
    fn cut_off(&self, life: u64);

    /// How many lives have ended so far. Who sleeps at the endpoint is woken when one does.
    fn ends(&self) -> u64;

    /// Whether a life has ended.
    fn has_ended(&self, life: u64) -> bool;
}

/// The lanes that the groups of an endpoint use, by number.
#[derive(Debug)]
pub(super) struct Roads {
    source: Option<Arc<dyn Lanes>>,
    roads: Vec<Option<Road>>,
    /// Those on which something is awaited.
    awaited: Vec<u32>,
    ends: u64,
    /// How many lives of those that are kept have ended.
    ended: usize,
}

#[derive(Debug)]
struct Road {
    lane: Box<dyn Lane>,
    life: u64,
    has_ended: bool,
    /// Groups that use it.
    groups: usize,
    /// Letters that running collectives wait for.
    awaited: usize,
    /// Whether it is listed as awaited.
    is_listed: bool,
    /// Letters that came before their collective had begun here.
    early: usize,
}

impl Roads {
    pub(super) fn new(source: Option<Arc<dyn Lanes>>) -> Self {
        Self {
            source,
            roads: Vec::new(),
            awaited: Vec::new(),
            ends: 0,
            ended: 0,
        }
    }

    /// The number of the lane to a member, for one more group; none if there are no lanes.
    pub(super) fn open(&mut self, member: FiAddr) -> Result<Option<u32>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let life = source.life(member)?;
        let of_life = |road: &Option<Road>| road.as_ref().is_some_and(|road| road.life == life);
        let at = match self.roads.iter().position(of_life) {
            Some(at) => at,
            None => {
                let lane = source.open(life)?;
                self.add(lane, life)
            }
        };
        self.at(at as u32).groups += 1;
        Ok(Some(at as u32))
    }

    fn add(&mut self, lane: Box<dyn Lane>, life: u64) -> usize {
        let road = Road {
            lane,
            life,
            has_ended: false,
            groups: 0,
            awaited: 0,
            is_listed: false,
            early: 0,
        };
        match self.roads.iter().position(Option::is_none) {
            Some(at) => {
                self.roads[at] = Some(road);
                at
            }
            None => {
                self.roads.push(Some(road));
                self.roads.len() - 1
            }
        }
    }

    /// A group uses its lanes no more. Where they have got to is kept as long as the peer lives.
    pub(super) fn leave(&mut self, lanes: &[Option<u32>]) {
        for &lane in lanes.iter().flatten() {
            self.at(lane).groups -= 1;
        }
        self.drop_ended();
    }

    /// Puts a letter into a lane.
    #[inline]
    pub(super) fn put(&mut self, lane: u32, letter: &Letter) -> Result {
        let road = self.at(lane);
        if road.has_ended {
            return Err(Errno::NotConn);
        }
        let life = road.life;
        match road.lane.put(letter) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.wake(life);
                Ok(())
            }
            Err(errno) => Err(self.refused(life, errno)),
        }
    }

    /// What a lane answers if it takes or gives nothing.
    #[cold]
    fn refused(&self, life: u64, errno: Errno) -> Errno {
        if errno != Errno::Again
            && let Some(source) = &self.source
        {
            source.cut_off(life);
        }
        errno
    }

    #[cold]
    fn wake(&self, life: u64) {
        if let Some(source) = &self.source {
            source.wake(life);
        }
    }

    /// Waits for one more letter of a lane.
    #[inline]
    pub(super) fn expect(&mut self, lane: u32) {
        let road = self.at(lane);
        road.awaited += 1;
        if !std::mem::replace(&mut road.is_listed, true) {
            self.awaited.push(lane);
        }
    }

    /// Whether anything is awaited.
    #[inline]
    pub(super) fn are_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// A letter has come, or is not waited for any more.
    #[inline]
    pub(super) fn had(&mut self, lane: u32) {
        self.at(lane).awaited -= 1;
    }

    /// The next letter of lane `place` of those that are awaited; lanes that are not any more leave
    /// the list. `None` behind the last.
    #[inline]
    pub(super) fn look(&mut self, place: usize) -> Option<(u32, Option<Letter>)> {
        loop {
            let &lane = self.awaited.get(place)?;
            let road = self.at(lane);
            if road.awaited > 0 {
                if road.early >= MOST_EARLY {
                    return Some((lane, None));
                }
                let (taken, life) = (road.lane.take(), road.life);
                let letter = taken.unwrap_or_else(|errno| {
                    self.refused(life, errno);
                    None
                });
                return Some((lane, letter));
            }
            road.is_listed = false;
            self.awaited.swap_remove(place);
        }
    }

    /// Counts a letter of a lane that is kept for later.
    pub(super) fn kept(&mut self, lane: u32) {
        self.at(lane).early += 1;
    }

    /// The opposite.
    pub(super) fn let_go(&mut self, lane: u32) {
        self.at(lane).early -= 1;
    }

    /// Whether a letter of a peer that is gone may be awaited, or be about to be put.
    #[inline]
    pub(super) fn has_losses(&mut self) -> bool {
        let ends = self.source.as_ref().map_or(0, |source| source.ends());
        if ends != self.ends {
            self.ends = ends;
            self.hear_of_ends();
        }
        self.ended > 0
    }

    #[cold]
    fn hear_of_ends(&mut self) {
        let Some(source) = &self.source else {
            return;
        };
        for road in self.roads.iter_mut().flatten() {
            road.has_ended |= source.has_ended(road.life);
        }
        self.drop_ended();
    }

    /// Forgets lanes to peers that are gone, unless a group is left with them.
    fn drop_ended(&mut self) {
        for at in 0..self.roads.len() {
            let is_over = |road: &mut Road| road.has_ended && road.groups == 0 && !road.is_listed;
            self.roads[at].take_if(is_over);
        }
        let ended = self.roads.iter().flatten();
        self.ended = ended.filter(|road| road.has_ended).count();
    }

    /// Whether the peer of a lane is gone.
    pub(super) fn has_ended(&self, lane: u32) -> bool {
        let road = self.roads[lane as usize].as_ref();
        road.is_some_and(|road| road.has_ended)
    }

    #[inline]
    fn at(&mut self, lane: u32) -> &mut Road {
        let road = self.roads[lane as usize].as_mut();
        road.expect("a group that uses a lane keeps it")
    }
}

/// What is said of a member whose lane has an end.
pub(super) fn lost(rank: usize, errno: Errno) -> Failure {
    (errno, format!("rank {rank} of the group is lost"))
}
