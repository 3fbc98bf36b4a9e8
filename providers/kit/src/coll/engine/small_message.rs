//! Small messages on channels: sending, receiving, and the failure of collectives that wait for a
//! peer that has ended.

use selvedge::Errno;
use selvedge::shared::SharedBytes;

use super::state::State;
use crate::coll::Failure;
use crate::coll::channel::{self, Channels, SMALL_MESSAGE_MAX, SmallMessage};
use crate::coll::group::{Group, Running};
use crate::coll::plan::{Message, Span};
use crate::coll::tag::{self, Number};

/// The largest number of messages that one poll takes from a channel. A peer that sends without end
/// must not block the poll.
const MAX_PER_POLL: usize = 64;

impl Group {
    /// The channel to a member for a message of this length, if such messages use channels.
    #[inline]
    pub(super) fn channel(&self, rank: usize, len: usize) -> Option<u32> {
        if len <= SMALL_MESSAGE_MAX {
            self.channels.get(rank).copied().flatten()
        } else {
            None
        }
    }

    /// Takes a message that was received before its collective began.
    fn take_early(
        &mut self,
        channel: u32,
        tag: u64,
        channels: &mut Channels,
    ) -> Option<SmallMessage> {
        let message = self.early.remove(&(channel, tag))?;
        channels.remove_early(channel);
        Some(message)
    }

    /// Discards all messages that were received early.
    pub(super) fn discard_early(&mut self, channels: &mut Channels) {
        for ((channel, _), _) in self.early.drain() {
            channels.remove_early(channel);
        }
    }
}

impl Running {
    /// The index of the awaited message of the present round with this channel and label.
    #[inline]
    fn awaited_index(
        &self,
        member_channels: &[Option<u32>],
        channel: u32,
        label: u32,
    ) -> Option<usize> {
        let is_match = |index: &usize| {
            let message = &self.plan.rounds[self.round].receives[*index];
            message.label == label && member_channels[message.peer] == Some(channel)
        };
        bits(self.awaited).find(is_match)
    }

    /// The awaited channel messages of the present round.
    fn awaited(&self) -> impl Iterator<Item = &Message> {
        bits(self.awaited).map(|index| &self.plan.rounds[self.round].receives[index])
    }

    /// The ranks of the members that send the awaited channel messages.
    pub(super) fn awaited_peers(&self) -> Vec<usize> {
        match self.awaited {
            0 => Vec::new(),
            _ => self.awaited().map(|message| message.peer).collect(),
        }
    }

    /// Stops waiting for channel messages.
    pub(super) fn cancel_awaited_messages(
        &mut self,
        member_channels: &[Option<u32>],
        channels: &mut Channels,
    ) {
        for channel in self
            .awaited()
            .filter_map(|message| member_channels[message.peer])
        {
            channels.remove_awaited(channel);
        }
        self.outstanding -= self.awaited.count_ones() as usize;
        self.awaited = 0;
    }
}

fn bits(word: u32) -> impl Iterator<Item = usize> {
    let nonzero = |word: u32| (word != 0).then_some(word);
    std::iter::successors(nonzero(word), move |&word| nonzero(word & (word - 1)))
        .map(|word| word.trailing_zeros() as usize)
}

/// Sends the message with this tag on a channel.
///
/// # Errors
/// [`Errno::Again`] while there is no room; other errors if the member has failed.
#[inline]
pub(super) fn send(
    channels: &mut Channels,
    channel: u32,
    tag: u64,
    part: SharedBytes,
) -> Result<(), Errno> {
    channels.send(channel, &SmallMessage::from_bytes(tag, part))
}

/// Takes message number `index` of the collective's round if the message was received early;
/// otherwise awaits the message. Returns whether the message is awaited.
///
/// # Errors
/// [`Errno::Trunc`] if the early message has another length.
#[inline]
pub(super) fn receive_or_await(
    channels: &mut Channels,
    group: &mut Group,
    running: usize,
    channel: u32,
    index: usize,
) -> Result<bool, Failure> {
    if !group.early.is_empty() {
        let running = &group.running[running];
        let Message { label, span, .. } = running.plan.rounds[running.round].receives[index];
        let (tag, target) = (
            tag::data(group.number, running.sequence, label),
            running.memory.part(span),
        );
        if let Some(message) = group.take_early(channel, tag, channels) {
            return copy_out(&message, span, target).map(|()| false);
        }
    }
    group.running[running].awaited |= 1 << index;
    channels.add_awaited(channel);
    Ok(true)
}

/// Copies a message to its destination.
#[inline]
fn copy_out(message: &SmallMessage, span: Span, target: SharedBytes) -> Result<(), Failure> {
    if message.len != span.len {
        let detail = format!("a message of {} bytes, expected {}", message.len, span.len);
        return Err((Errno::Trunc, detail));
    }
    message.write(target);
    Ok(())
}

impl State {
    /// Receives the awaited messages, and returns their number.
    #[inline]
    pub(super) fn poll_channels_once(&mut self) -> usize {
        // A peer that has ended by now sends nothing after this point.
        let has_ended = self.channels.update_ended();
        let (mut slot, mut taken, mut from_channel) = (0, 0, 0);
        while let Some((channel, message)) = self.channels.poll_awaited(slot) {
            if let Some(message) = message {
                (taken, from_channel) = (taken + 1, from_channel + 1);
                self.receive_message(channel, &message);
            }
            if message.is_none() || from_channel == MAX_PER_POLL {
                (slot, from_channel) = (slot + 1, 0);
            }
        }
        if has_ended {
            self.fail_collectives_of_ended_peers();
        }
        taken
    }

    /// Handles a message of a member. The tag and the length are the member's and are not trusted.
    fn receive_message(&mut self, channel: u32, message: &SmallMessage) {
        let Some((number, sequence, label)) = tag::parse_data(message.tag) else {
            return;
        };
        if self.receive_on_fast_path(number, channel, message) {
            return;
        }
        let group = self.groups.get_mut(&number);
        let Some(group) = group.filter(|group| group.broken.is_none()) else {
            return;
        };
        let mut all = group.running.iter_mut();
        if let Some(running) = all.find(|running| running.sequence == sequence)
            && let Some(index) = running.awaited_index(&group.channels, channel, label)
        {
            running.awaited &= !(1 << index);
            running.outstanding -= 1;
            let span = running.plan.rounds[running.round].receives[index].span;
            let outcome = copy_out(message, span, running.memory.part(span));
            self.channels.remove_awaited(channel);
            return match outcome {
                Ok(()) => self.advance(number, sequence),
                Err(failure) => self.fail_collective_and_group(number, sequence, failure),
            };
        }
        if group
            .early
            .insert((channel, message.tag), *message)
            .is_none()
        {
            self.channels.add_early(channel);
        }
    }

    /// Opens the channels to the members of a group that all members have joined.
    ///
    /// # Errors
    /// If a member has failed.
    pub(super) fn open_channels(&mut self, number: Number) -> Result<(), Failure> {
        let Some(group) = self.groups.get_mut(&number) else {
            return Ok(());
        };
        let mut channels = vec![None; group.members.len()];
        for rank in group.others() {
            match self.channels.open(group.members[rank]) {
                Ok(None) => return Ok(()),
                Ok(channel) => channels[rank] = channel,
                Err(errno) => {
                    self.channels.release(&channels);
                    return Err(channel::member_failure(rank, errno));
                }
            }
        }
        group.channels = channels;
        Ok(())
    }

    /// Fails the collectives that wait for a message of a peer that has ended and whose last
    /// message was taken.
    #[cold]
    fn fail_collectives_of_ended_peers(&mut self) {
        self.move_all_to_slow_path();
        let mut failed = Vec::new();
        for group in self.groups.values() {
            for running in &group.running {
                let mut awaited = running.awaited().map(|message| message.peer);
                let has_ended_peer = |rank: &usize| {
                    group.channels[*rank].is_some_and(|channel| self.channels.has_ended(channel))
                };
                if let Some(rank) = awaited.find(has_ended_peer) {
                    failed.push((group.number, running.sequence, rank));
                }
            }
        }
        for (number, sequence, rank) in failed {
            self.fail_collective_and_group(
                number,
                sequence,
                channel::member_failure(rank, Errno::ConnReset),
            );
        }
    }
}
