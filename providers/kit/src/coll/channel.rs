//! Lanes: a provider's own way for messages of few bytes between two members, beside the tagged
//! messages of its endpoint.
//!
//! A message on a lane is a [`SmallMessage`]: it is there as soon as it is put, needs no receive, and
//! nobody reports its end. The layer looks at the lanes on which it waits for something. If a
//! provider has lanes, all its endpoints with collectives have one to each other in each direction,
//! so that both ends of a message know by its length which way it goes.

use std::fmt;
use std::sync::Arc;

use selvedge::shared::SharedBytes;
use selvedge::{Errno, FiAddr, Result};

use super::group::Failure;

/// The most bytes of a letter.
pub const SMALL_MESSAGE_MAX: usize = 48;
/// Letters of one lane that may wait for their collective to begin here; the others wait with their
/// sender.
const MAX_EARLY: usize = 1 << 16;

/// A message of a collective.
#[derive(Clone, Copy, Debug)]
pub struct SmallMessage {
    /// Which one.
    pub tag: u64,
    /// Bytes of it, [`SMALL_MESSAGE_MAX`] at most.
    pub len: usize,
    /// The bytes as they lie in memory; those behind the end mean nothing.
    pub words: [u64; SMALL_MESSAGE_MAX / 8],
}

impl SmallMessage {
    /// One with nothing but zeros.
    #[inline]
    pub const fn new(tag: u64, len: usize) -> Self {
        Self {
            tag,
            len,
            words: [0; SMALL_MESSAGE_MAX / 8],
        }
    }

    /// One with one word.
    #[inline]
    pub(super) const fn word(tag: u64, word: u64) -> Self {
        let mut message = Self::new(tag, 8);
        message.words[0] = word;
        message
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
        let mut message = Self::new(tag, part.len());
        let mut bytes = [0; SMALL_MESSAGE_MAX];
        part.read_into(&mut bytes[..part.len()]);
        for (word, bytes) in message.words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("eight of them"));
        }
        message
    }

    /// Writes the bytes to where they belong, which are as many.
    #[inline]
    pub(super) fn write(&self, to: SharedBytes) {
        if self.len == 8 {
            return to.write(&self.words[0].to_ne_bytes());
        }
        let mut bytes = [0; SMALL_MESSAGE_MAX];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        to.write(&bytes[..self.len]);
    }
}

/// The lanes between an endpoint and one life of a peer: one in each direction.
pub trait CollectiveChannel: fmt::Debug + Send + Sync {
    /// Puts a letter, and says whether the peer may have to be woken ([`CollectiveChannels::wake`]).
    ///
    /// # Errors
    /// [`Errno::Again`] while the peer has not made room; [`Errno::Proto`] if it breaks the rules.
    fn try_send(&mut self, message: &SmallMessage) -> Result<bool>;

    /// The oldest letter of the peer, which has no more than [`SMALL_MESSAGE_MAX`] bytes. What else it says is the
    /// peer's word.
    ///
    /// # Errors
    /// [`Errno::Proto`] if it breaks the rules.
    fn try_receive(&mut self) -> Result<Option<SmallMessage>>;
}

/// What a provider's endpoint has for lanes.
pub trait CollectiveChannels: fmt::Debug + Send + Sync {
    /// The number of a peer's life, which no other life of any peer has.
    ///
    /// # Errors
    /// [`Errno::NotConn`] for a peer with which no messages were exchanged in this life.
    fn incarnation(&self, peer: FiAddr) -> Result<u64>;

    /// The lanes to a life of a peer, which are opened once.
    ///
    /// # Errors
    /// [`Errno::NotConn`] if it is over.
    fn open(&self, incarnation: u64) -> Result<Box<dyn CollectiveChannel>>;

    /// Wakes a peer that sleeps, after something was put into its lane.
    fn wake(&self, incarnation: u64);

    /// Believes a peer that breaks the rules no more: its life ends.
    fn disconnect(&self, incarnation: u64);

    /// How many lives have ended so far. Who sleeps at the endpoint is woken when one does.
    fn ended_count(&self) -> u64;

    /// Whether a life has ended.
    fn has_ended(&self, incarnation: u64) -> bool;
}

/// The lanes that the groups of an endpoint use, by number.
#[derive(Debug)]
pub(super) struct Channels {
    source: Option<Arc<dyn CollectiveChannels>>,
    channels: Vec<Option<Channel>>,
    /// Those on which something is awaited.
    awaited: Vec<u32>,
    ended_count: u64,
    /// How many lives of those that are kept have ended.
    ended: usize,
}

#[derive(Debug)]
struct Channel {
    inner: Box<dyn CollectiveChannel>,
    incarnation: u64,
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

impl Channels {
    pub(super) fn new(source: Option<Arc<dyn CollectiveChannels>>) -> Self {
        Self {
            source,
            channels: Vec::new(),
            awaited: Vec::new(),
            ended_count: 0,
            ended: 0,
        }
    }

    /// The number of the lane to a member, for one more group; none if there are no lanes.
    pub(super) fn open(&mut self, member: FiAddr) -> Result<Option<u32>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let incarnation = source.incarnation(member)?;
        let is_same_incarnation = |channel: &Option<Channel>| {
            channel
                .as_ref()
                .is_some_and(|channel| channel.incarnation == incarnation)
        };
        let at = match self.channels.iter().position(is_same_incarnation) {
            Some(at) => at,
            None => {
                let inner = source.open(incarnation)?;
                self.add(inner, incarnation)
            }
        };
        self.channel_mut(at as u32).groups += 1;
        Ok(Some(at as u32))
    }

    fn add(&mut self, inner: Box<dyn CollectiveChannel>, incarnation: u64) -> usize {
        let channel = Channel {
            inner,
            incarnation,
            has_ended: false,
            groups: 0,
            awaited: 0,
            is_listed: false,
            early: 0,
        };
        match self.channels.iter().position(Option::is_none) {
            Some(at) => {
                self.channels[at] = Some(channel);
                at
            }
            None => {
                self.channels.push(Some(channel));
                self.channels.len() - 1
            }
        }
    }

    /// A group uses its lanes no more. Where they have got to is kept as long as the peer lives.
    pub(super) fn release(&mut self, channels: &[Option<u32>]) {
        for &channel in channels.iter().flatten() {
            self.channel_mut(channel).groups -= 1;
        }
        self.drop_ended();
    }

    /// Puts a letter into a lane.
    #[inline]
    pub(super) fn send(&mut self, channel: u32, message: &SmallMessage) -> Result {
        let entry = self.channel_mut(channel);
        if entry.has_ended {
            return Err(Errno::NotConn);
        }
        let incarnation = entry.incarnation;
        match entry.inner.try_send(message) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.wake(incarnation);
                Ok(())
            }
            Err(errno) => Err(self.disconnect_on_error(incarnation, errno)),
        }
    }

    /// What a lane answers if it takes or gives nothing.
    #[cold]
    fn disconnect_on_error(&self, incarnation: u64, errno: Errno) -> Errno {
        if errno != Errno::Again
            && let Some(source) = &self.source
        {
            source.disconnect(incarnation);
        }
        errno
    }

    #[cold]
    fn wake(&self, incarnation: u64) {
        if let Some(source) = &self.source {
            source.wake(incarnation);
        }
    }

    /// Waits for one more letter of a lane.
    #[inline]
    pub(super) fn add_awaited(&mut self, channel: u32) {
        let entry = self.channel_mut(channel);
        entry.awaited += 1;
        if !std::mem::replace(&mut entry.is_listed, true) {
            self.awaited.push(channel);
        }
    }

    /// Whether anything is awaited.
    #[inline]
    pub(super) fn has_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// A letter has come, or is not waited for any more.
    #[inline]
    pub(super) fn remove_awaited(&mut self, channel: u32) {
        self.channel_mut(channel).awaited -= 1;
    }

    /// The next letter of lane `slot` of those that are awaited; lanes that are not any more leave
    /// the list. `None` behind the last.
    #[inline]
    pub(super) fn poll_awaited(&mut self, slot: usize) -> Option<(u32, Option<SmallMessage>)> {
        loop {
            let &channel = self.awaited.get(slot)?;
            let entry = self.channel_mut(channel);
            if entry.awaited > 0 {
                if entry.early >= MAX_EARLY {
                    return Some((channel, None));
                }
                let (taken, incarnation) = (entry.inner.try_receive(), entry.incarnation);
                let message = taken.unwrap_or_else(|errno| {
                    self.disconnect_on_error(incarnation, errno);
                    None
                });
                return Some((channel, message));
            }
            entry.is_listed = false;
            self.awaited.swap_remove(slot);
        }
    }

    /// Counts a letter of a lane that is kept for later.
    pub(super) fn add_early(&mut self, channel: u32) {
        self.channel_mut(channel).early += 1;
    }

    /// The opposite.
    pub(super) fn remove_early(&mut self, channel: u32) {
        self.channel_mut(channel).early -= 1;
    }

    /// Whether a letter of a peer that is gone may be awaited, or be about to be put.
    #[inline]
    pub(super) fn update_ended(&mut self) -> bool {
        let ended_count = self
            .source
            .as_ref()
            .map_or(0, |source| source.ended_count());
        if ended_count != self.ended_count {
            self.ended_count = ended_count;
            self.mark_ended();
        }
        self.ended > 0
    }

    #[cold]
    fn mark_ended(&mut self) {
        let Some(source) = &self.source else {
            return;
        };
        for channel in self.channels.iter_mut().flatten() {
            channel.has_ended |= source.has_ended(channel.incarnation);
        }
        self.drop_ended();
    }

    /// Forgets lanes to peers that are gone, unless a group is left with them.
    fn drop_ended(&mut self) {
        for at in 0..self.channels.len() {
            let is_done = |channel: &mut Channel| {
                channel.has_ended && channel.groups == 0 && !channel.is_listed
            };
            self.channels[at].take_if(is_done);
        }
        let ended = self.channels.iter().flatten();
        self.ended = ended.filter(|channel| channel.has_ended).count();
    }

    /// Whether the peer of a lane is gone.
    pub(super) fn has_ended(&self, channel: u32) -> bool {
        let channel = self.channels[channel as usize].as_ref();
        channel.is_some_and(|channel| channel.has_ended)
    }

    #[inline]
    fn channel_mut(&mut self, channel: u32) -> &mut Channel {
        let channel = self.channels[channel as usize].as_mut();
        channel.expect("a group that uses a lane keeps it")
    }
}

/// What is said of a member whose lane has an end.
pub(super) fn member_failure(rank: usize, errno: Errno) -> Failure {
    (errno, format!("rank {rank} of the group is lost"))
}
