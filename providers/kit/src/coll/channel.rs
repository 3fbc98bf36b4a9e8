//! Collective channels: a provider's faster path for small messages between two members, beside the
//! tagged messages of its endpoint.
//!
//! A [`SmallMessage`] on a channel is available as soon as it is sent. The message needs no receive
//! and has no completion. The layer polls the channels on which it awaits a message. If a provider
//! has channels, all its endpoints with collectives have one in each direction between any two, so
//! both sides know from a message's length whether it uses the channel.

use std::fmt;
use std::sync::Arc;

use selvedge::shared::SharedBytes;
use selvedge::{Errno, FiAddr, Result};

use super::Failure;

/// The largest length of a small message in bytes.
pub const SMALL_MESSAGE_MAX: usize = 48;
/// Messages of one channel that may wait for their collective to begin at this member; further ones
/// stay with the sender.
const MAX_EARLY: usize = 1 << 16;

/// A message of a collective on a channel.
#[derive(Clone, Copy, Debug)]
pub struct SmallMessage {
    /// The tag, which identifies the collective and the message.
    pub tag: u64,
    /// The length in bytes, [`SMALL_MESSAGE_MAX`] at most.
    pub len: usize,
    /// The payload in memory order; the bytes beyond `len` are undefined.
    pub words: [u64; SMALL_MESSAGE_MAX / 8],
}

impl SmallMessage {
    /// A message of `len` zero bytes.
    #[inline]
    pub const fn new(tag: u64, len: usize) -> Self {
        Self {
            tag,
            len,
            words: [0; SMALL_MESSAGE_MAX / 8],
        }
    }

    /// A message of one word.
    #[inline]
    pub(super) const fn from_word(tag: u64, word: u64) -> Self {
        let mut message = Self::new(tag, 8);
        message.words[0] = word;
        message
    }

    /// A message with these bytes.
    ///
    /// # Panics
    /// If there are more than [`SMALL_MESSAGE_MAX`] bytes.
    #[inline]
    pub(super) fn from_bytes(tag: u64, part: SharedBytes) -> Self {
        if part.len() == 8 {
            let mut bytes = [0; 8];
            part.read_into(&mut bytes);
            return Self::from_word(tag, u64::from_ne_bytes(bytes));
        }
        let mut message = Self::new(tag, part.len());
        let mut bytes = [0; SMALL_MESSAGE_MAX];
        part.read_into(&mut bytes[..part.len()]);
        for (word, bytes) in message.words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight bytes"));
        }
        message
    }

    /// Copies the payload to `target`, which has the same length.
    #[inline]
    pub(super) fn write(&self, target: SharedBytes) {
        if self.len == 8 {
            return target.write(&self.words[0].to_ne_bytes());
        }
        let mut bytes = [0; SMALL_MESSAGE_MAX];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        target.write(&bytes[..self.len]);
    }
}

/// The pair of channels between an endpoint and one incarnation of a peer, one in each direction.
pub trait CollectiveChannel: fmt::Debug + Send + Sync {
    /// Sends a message. Returns whether the peer may have to be woken
    /// ([`CollectiveChannels::wake`]).
    ///
    /// # Errors
    /// [`Errno::Again`] while the peer has not made room; [`Errno::Proto`] if it violates the
    /// protocol.
    fn try_send(&mut self, message: &SmallMessage) -> Result<bool>;

    /// Receives the oldest message, which has at most [`SMALL_MESSAGE_MAX`] bytes. Its contents are
    /// the peer's and are not trusted.
    ///
    /// # Errors
    /// [`Errno::Proto`] if the peer violates the protocol.
    fn try_receive(&mut self) -> Result<Option<SmallMessage>>;
}

/// The source of channels: a provider's endpoint.
pub trait CollectiveChannels: fmt::Debug + Send + Sync {
    /// The number of the peer's incarnation, which is unique among all incarnations of all peers.
    ///
    /// # Errors
    /// [`Errno::NotConn`] for a peer whose present incarnation has not exchanged messages with this
    /// endpoint.
    fn incarnation(&self, peer: FiAddr) -> Result<u64>;

    /// Opens the channels to an incarnation of a peer. The caller opens them once.
    ///
    /// # Errors
    /// [`Errno::NotConn`] if the incarnation has ended.
    fn open(&self, incarnation: u64) -> Result<Box<dyn CollectiveChannel>>;

    /// Wakes a parked peer after a message was sent to it.
    fn wake(&self, incarnation: u64);

    /// Disconnects a peer that violates the protocol, which ends its incarnation.
    fn disconnect(&self, incarnation: u64);

    /// The number of incarnations that have ended so far. The end of one wakes a thread that is
    /// parked at the endpoint.
    fn ended_count(&self) -> u64;

    /// Whether an incarnation has ended.
    fn has_ended(&self, incarnation: u64) -> bool;
}

/// The channels that the groups of an endpoint use, by number.
#[derive(Debug)]
pub(super) struct Channels {
    source: Option<Arc<dyn CollectiveChannels>>,
    channels: Vec<Option<Channel>>,
    /// The numbers of channels with awaited messages.
    awaited: Vec<u32>,
    ended_count: u64,
    /// The number of open channels whose peer has ended.
    ended: usize,
}

#[derive(Debug)]
struct Channel {
    provider_channel: Box<dyn CollectiveChannel>,
    incarnation: u64,
    has_ended: bool,
    /// The number of groups that use the channel.
    groups: usize,
    /// The number of messages that running collectives await.
    awaited: usize,
    /// Whether [`Channels::awaited`] lists the channel.
    is_listed: bool,
    /// The number of messages that were received before their collective began.
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

    /// Opens the channel to a member for one more group and returns its number; none if the
    /// provider has no channels.
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
        let index = match self.channels.iter().position(is_same_incarnation) {
            Some(index) => index,
            None => {
                let provider_channel = source.open(incarnation)?;
                self.add(provider_channel, incarnation)
            }
        };
        self.channel_mut(index as u32).groups += 1;
        Ok(Some(index as u32))
    }

    fn add(&mut self, provider_channel: Box<dyn CollectiveChannel>, incarnation: u64) -> usize {
        let channel = Channel {
            provider_channel,
            incarnation,
            has_ended: false,
            groups: 0,
            awaited: 0,
            is_listed: false,
            early: 0,
        };
        match self.channels.iter().position(Option::is_none) {
            Some(index) => {
                self.channels[index] = Some(channel);
                index
            }
            None => {
                self.channels.push(Some(channel));
                self.channels.len() - 1
            }
        }
    }

    /// Releases the channels of a group. A channel stays open until the peer's incarnation ends,
    /// because both sides continue at the channel's position.
    pub(super) fn release(&mut self, channels: &[Option<u32>]) {
        for &channel in channels.iter().flatten() {
            self.channel_mut(channel).groups -= 1;
        }
        self.drop_ended();
    }

    /// Sends a message on a channel.
    #[inline]
    pub(super) fn send(&mut self, channel: u32, message: &SmallMessage) -> Result {
        let entry = self.channel_mut(channel);
        if entry.has_ended {
            return Err(Errno::NotConn);
        }
        let incarnation = entry.incarnation;
        match entry.provider_channel.try_send(message) {
            Ok(false) => Ok(()),
            Ok(true) => {
                self.wake(incarnation);
                Ok(())
            }
            Err(errno) => Err(self.disconnect_on_error(incarnation, errno)),
        }
    }

    /// Disconnects a peer that violated the protocol. Returns the error.
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

    /// Adds an awaited message of a channel.
    #[inline]
    pub(super) fn add_awaited(&mut self, channel: u32) {
        let entry = self.channel_mut(channel);
        entry.awaited += 1;
        if !std::mem::replace(&mut entry.is_listed, true) {
            self.awaited.push(channel);
        }
    }

    /// Whether any message is awaited.
    #[inline]
    pub(super) fn has_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Removes an awaited message: it was received or is no longer awaited.
    #[inline]
    pub(super) fn remove_awaited(&mut self, channel: u32) {
        self.channel_mut(channel).awaited -= 1;
    }

    /// Receives from the channel at position `slot` of the list of awaited channels. Channels
    /// without awaited messages leave the list. `None` behind the last.
    #[inline]
    pub(super) fn poll_awaited(&mut self, slot: usize) -> Option<(u32, Option<SmallMessage>)> {
        loop {
            let &channel = self.awaited.get(slot)?;
            let entry = self.channel_mut(channel);
            if entry.awaited > 0 {
                if entry.early >= MAX_EARLY {
                    return Some((channel, None));
                }
                let (taken, incarnation) =
                    (entry.provider_channel.try_receive(), entry.incarnation);
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

    /// Adds a message that is stored until its collective begins.
    pub(super) fn add_early(&mut self, channel: u32) {
        self.channel_mut(channel).early += 1;
    }

    /// Removes a message that was stored early.
    pub(super) fn remove_early(&mut self, channel: u32) {
        self.channel_mut(channel).early -= 1;
    }

    /// Marks the channels whose peer has ended. Returns whether any open channel has such a peer.
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

    /// Closes the channels to ended peers that no group uses.
    fn drop_ended(&mut self) {
        for index in 0..self.channels.len() {
            let is_done = |channel: &mut Channel| {
                channel.has_ended && channel.groups == 0 && !channel.is_listed
            };
            self.channels[index].take_if(is_done);
        }
        let ended = self.channels.iter().flatten();
        self.ended = ended.filter(|channel| channel.has_ended).count();
    }

    /// Whether the peer of a channel has ended.
    pub(super) fn has_ended(&self, channel: u32) -> bool {
        let channel = self.channels[channel as usize].as_ref();
        channel.is_some_and(|channel| channel.has_ended)
    }

    #[inline]
    fn channel_mut(&mut self, channel: u32) -> &mut Channel {
        let channel = self.channels[channel as usize].as_mut();
        channel.expect("a group that uses a channel keeps it")
    }
}

/// The failure of a member whose channel failed or ended.
pub(super) fn member_failure(rank: usize, errno: Errno) -> Failure {
    (errno, format!("rank {rank} of the group has failed"))
}
