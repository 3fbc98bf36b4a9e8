//! Messages of few bytes on lanes: both halves, and what becomes of those that nobody sends any more.

use selvedge::Errno;
use selvedge::shared::SharedBytes;

use super::channel::{self, Channels, SMALL_MESSAGE_MAX, SmallMessage};
use super::engine::State;
use super::group::{Failure, Group, Running};
use super::plan::{Message, Span};
use super::tag::{self, Number};

/// Letters of one lane in one look: a member that writes nonsense without end stops nobody.
const MAX_PER_POLL: usize = 64;

impl Group {
    /// The lane to a member for a message of so many bytes, if it goes there.
    #[inline]
    pub(super) fn channel(&self, rank: usize, len: usize) -> Option<u32> {
        match len <= SMALL_MESSAGE_MAX {
            true => self.channels.get(rank).copied().flatten(),
            false => None,
        }
    }

    /// A letter that came before it was waited for.
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

    /// Drops all of those.
    pub(super) fn discard_early(&mut self, channels: &mut Channels) {
        for ((channel, _), _) in self.early.drain() {
            channels.remove_early(channel);
        }
    }
}

impl Running {
    /// Which message of the round that is under way, if it is waited for on a lane.
    #[inline]
    fn awaits(&self, member_channels: &[Option<u32>], channel: u32, label: u32) -> Option<usize> {
        let is_it = |at: &usize| {
            let message = &self.plan.rounds[self.round].receives[*at];
            message.label == label && member_channels[message.peer] == Some(channel)
        };
        bits(self.awaited).find(is_it)
    }

    /// Messages of the round that are waited for on lanes.
    fn awaited(&self) -> impl Iterator<Item = &Message> {
        bits(self.awaited).map(|at| &self.plan.rounds[self.round].receives[at])
    }

    /// The members of whom those are.
    pub(super) fn awaited_peers(&self) -> Vec<usize> {
        match self.awaited {
            0 => Vec::new(),
            _ => self.awaited().map(|message| message.peer).collect(),
        }
    }

    /// Waits for nothing on lanes any more.
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
    let below = |word: u32| (word != 0).then_some(word);
    std::iter::successors(below(word), move |&word| below(word & (word - 1)))
        .map(|word| word.trailing_zeros() as usize)
}

/// Sends a message of the collective with this tag.
///
/// # Errors
/// [`Errno::Again`] while there is no room; others if the member is lost.
#[inline]
pub(super) fn send(
    channels: &mut Channels,
    channel: u32,
    tag: u64,
    part: SharedBytes,
) -> Result<(), Errno> {
    channels.send(channel, &SmallMessage::with(tag, part))
}

/// Waits for the message number `at` of a collective's round, unless it is here. Says whether it is
/// waited for.
///
/// # Errors
/// If what is here is something else.
#[inline]
pub(super) fn receive_or_await(
    channels: &mut Channels,
    group: &mut Group,
    running: usize,
    channel: u32,
    at: usize,
) -> Result<bool, Failure> {
    if !group.early.is_empty() {
        let running = &group.running[running];
        let Message { label, span, .. } = running.plan.rounds[running.round].receives[at];
        let (tag, to) = (
            tag::data(group.number, running.sequence, label),
            running.memory.part(span),
        );
        if let Some(message) = group.take_early(channel, tag, channels) {
            return copy_out(&message, span, to).map(|()| false);
        }
    }
    group.running[running].awaited |= 1 << at;
    channels.add_awaited(channel);
    Ok(true)
}

/// Puts a letter where it belongs.
#[inline]
fn copy_out(message: &SmallMessage, span: Span, to: SharedBytes) -> Result<(), Failure> {
    if message.len != span.len {
        let detail = format!(
            "a message of {} bytes where {} were due",
            message.len, span.len
        );
        return Err((Errno::Trunc, detail));
    }
    message.write(to);
    Ok(())
}

impl State {
    /// Takes the letters that are waited for. How many there were.
    #[inline]
    pub(super) fn poll_channels_once(&mut self) -> usize {
        // Whoever has ended by now has put all that it ever will.
        let has_ended = self.channels.update_ended();
        let (mut slot, mut taken, mut from_one) = (0, 0, 0);
        while let Some((channel, message)) = self.channels.poll_awaited(slot) {
            if let Some(message) = message {
                (taken, from_one) = (taken + 1, from_one + 1);
                self.message_received(channel, &message);
            }
            if message.is_none() || from_one == MAX_PER_POLL {
                (slot, from_one) = (slot + 1, 0);
            }
        }
        if has_ended {
            self.fail_collectives_of_ended_peers();
        }
        taken
    }

    /// A member's letter, as it says itself.
    fn message_received(&mut self, channel: u32, message: &SmallMessage) {
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
            && let Some(at) = running.awaits(&group.channels, channel, label)
        {
            running.awaited &= !(1 << at);
            running.outstanding -= 1;
            let span = running.plan.rounds[running.round].receives[at].span;
            let outcome = copy_out(message, span, running.memory.part(span));
            self.channels.remove_awaited(channel);
            return match outcome {
                Ok(()) => self.advance(number, sequence),
                Err(failure) => self.collective_failed(number, sequence, failure),
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

    /// Opens the lanes of a group that all members have joined.
    ///
    /// # Errors
    /// If a member is lost.
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

    /// Collectives that wait for a letter of somebody who is gone, and whose last letter was taken.
    #[cold]
    fn fail_collectives_of_ended_peers(&mut self) {
        self.move_all_to_slow_path();
        let mut failed = Vec::new();
        for group in self.groups.values() {
            for running in &group.running {
                let mut awaited = running.awaited().map(|message| message.peer);
                let is_lost = |rank: &usize| {
                    group.channels[*rank].is_some_and(|channel| self.channels.has_ended(channel))
                };
                if let Some(rank) = awaited.find(is_lost) {
                    failed.push((group.number, running.sequence, rank));
                }
            }
        }
        for (number, sequence, rank) in failed {
            self.collective_failed(
                number,
                sequence,
                channel::member_failure(rank, Errno::ConnReset),
            );
        }
    }
}
