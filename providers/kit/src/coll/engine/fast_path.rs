//! The fast path of collectives of eight bytes: barriers, and all-reduces of a power of two
//! members, where every round sends one message and receives one.
//!
//! A group remembers the precomputed rounds of such a collective. One at a time runs on the fast
//! path, without a copy of its plan, scratch memory or an entry in the list of running collectives.
//! Its channel messages are those of the plan, so other members need not know which path a member
//! takes. If a condition of the fast path fails (no room, a failed peer, a long wait, another
//! collective behind it), the collective moves to the slow path and continues there.

use std::sync::Arc;

use selvedge::collective::{CollectiveMsg, Op};
use selvedge::{Context, OpFlags};

use super::state::State;
use crate::atomic::Kernel;
use crate::coll::channel::{Channels, SmallMessage};
use crate::coll::fast_collective::{FastCollective, FastRun};
use crate::coll::group::{Group, Running};
use crate::coll::memory::{Memory, UserBuffers};
use crate::coll::plan::Shape;
use crate::coll::tag::{self, Number};

/// Collectives that a group remembers.
const MAX_REMEMBERED: usize = 4;

impl Group {
    /// The remembered collective that matches the call, if the fast path can run it now.
    #[inline]
    fn fast_collective(&self, msg: &CollectiveMsg) -> Option<usize> {
        let is_busy = self.fast_run.is_some() || !self.running.is_empty();
        if is_busy || self.is_left || self.broken.is_some() || self.fast_collectives.is_empty() {
            return None;
        }
        let has_memory = msg.coll == Op::Barrier || !msg.buf.is_null() && !msg.result.is_null();
        let found = self
            .fast_collectives
            .iter()
            .position(|fast_collective| fast_collective.matches_msg(msg));
        found.filter(|_| has_memory)
    }

    /// Remembers a collective for the next call.
    pub(in crate::coll) fn remember(
        &mut self,
        msg: &CollectiveMsg,
        shape: &Shape,
        kernel: Option<Kernel>,
    ) {
        if self.channels.is_empty()
            || self
                .fast_collectives
                .iter()
                .any(|fast_collective| fast_collective.matches_msg(msg))
        {
            return;
        }
        let channel = |rank, len| self.channel(rank, len);
        if let Some(fast_collective) =
            FastCollective::new(msg, shape, kernel, &self.numbers, channel)
        {
            if self.fast_collectives.len() == MAX_REMEMBERED {
                self.fast_collectives.remove(0);
            }
            self.fast_collectives.push(fast_collective);
        }
    }

    /// Sends the message of the present round, and of further rounds as long as their messages were
    /// received early. `None` if the collective waits for a message.
    #[inline]
    fn exchange(&mut self, channels: &mut Channels) -> Option<ExchangeOutcome> {
        let number = self.number;
        loop {
            let fast_run = self.fast_run.as_mut()?;
            let fast_collective = &self.fast_collectives[fast_run.fast_collective];
            let Some(round) = fast_collective.rounds.get(fast_run.round) else {
                return Some(ExchangeOutcome::Complete);
            };
            let early = if self.early.is_empty() {
                None
            } else {
                let tag = tag::data(number, fast_run.sequence, round.label);
                self.early.get(&(round.receive_channel, tag)).copied()
            };
            if early.is_some_and(|message| message.len != 8) {
                return Some(ExchangeOutcome::NeedsSlowPath);
            }
            let tag = tag::data(round.remote_number, fast_run.sequence, round.label);
            if channels
                .send(
                    round.send_channel,
                    &SmallMessage::from_word(tag, fast_run.value),
                )
                .is_err()
            {
                return Some(ExchangeOutcome::NeedsSlowPath);
            }
            let Some(message) = early else {
                fast_run.is_awaiting = true;
                channels.add_awaited(round.receive_channel);
                return None;
            };
            let receive_channel = round.receive_channel;
            self.early.remove(&(receive_channel, message.tag));
            channels.remove_early(receive_channel);
            self.combine(message.words[0]);
        }
    }

    /// Completes a round with the received value.
    #[inline]
    fn combine(&mut self, word: u64) {
        let Some(fast_run) = &mut self.fast_run else {
            return;
        };
        let fast_collective = &self.fast_collectives[fast_run.fast_collective];
        if let Some(reduction) = &fast_collective.reduction {
            fast_run.value = if fast_collective.rounds[fast_run.round].is_left {
                reduction.apply(word, fast_run.value)
            } else {
                reduction.apply(fast_run.value, word)
            };
        }
        (fast_run.round, fast_run.is_awaiting) = (fast_run.round + 1, false);
    }

    /// Whether a message is the one that the fast path awaits.
    #[inline]
    fn is_awaited(&self, channel: u32, message: &SmallMessage) -> bool {
        let Some(fast_run) = self
            .fast_run
            .as_ref()
            .filter(|fast_run| fast_run.is_awaiting)
        else {
            return false;
        };
        let round = &self.fast_collectives[fast_run.fast_collective].rounds[fast_run.round];
        round.receive_channel == channel
            && message.len == 8
            && message.tag == tag::data(self.number, fast_run.sequence, round.label)
    }

    /// Moves the running collective to the slow path.
    pub(in crate::coll) fn move_to_slow_path(&mut self) {
        let Some(fast_run) = self.fast_run.take() else {
            return;
        };
        let fast_collective = &self.fast_collectives[fast_run.fast_collective];
        let (coll, plan, kernel) = (
            fast_collective.coll,
            Arc::clone(&fast_collective.plan),
            fast_collective.kernel(),
        );
        let memory = Memory::new(fast_run.user_buffers, self.scratch(plan.scratch));
        if let Some(round) = plan.rounds.get(fast_run.round) {
            let sent = memory.part(round.sends[0].span);
            sent.write(&fast_run.value.to_ne_bytes());
        }
        let is_posted = usize::from(fast_run.is_awaiting);
        self.running.push(Running {
            coll,
            sequence: fast_run.sequence,
            plan,
            kernel,
            memory,
            round: fast_run.round,
            posted: 2 * is_posted,
            outstanding: is_posted,
            awaited: is_posted as u32,
            failure: None,
            is_pinged: false,
            waiting_since: 0,
            context: fast_run.context,
            flags: fast_run.flags,
        });
    }
}

/// The result of an exchange that does not wait.
#[derive(Clone, Copy, Debug)]
enum ExchangeOutcome {
    Complete,
    NeedsSlowPath,
}

impl Group {
    /// Begins the remembered collective number `fast_collective`.
    #[inline]
    fn begin(
        &mut self,
        channels: &mut Channels,
        fast_collective: usize,
        user_buffers: UserBuffers,
        (context, flags): (Context, OpFlags),
    ) -> Option<ExchangeOutcome> {
        let sequence = self.next_sequence;
        self.next_sequence = (sequence + 1) & tag::SEQUENCE;
        self.fast_run = Some(FastRun {
            fast_collective,
            sequence,
            round: 0,
            is_awaiting: false,
            value: user_buffers.word(),
            user_buffers,
            context,
            flags,
        });
        self.exchange(channels)
    }

    /// Writes the result and ends the collective.
    #[inline]
    fn end(&mut self) -> Option<(Context, OpFlags)> {
        let fast_run = self.fast_run.take()?;
        fast_run.user_buffers.set_word(fast_run.value);
        Some((fast_run.context, fast_run.flags))
    }
}

impl State {
    /// Begins a collective if its group remembers it and the fast path can run it now.
    /// `user_buffers` returns the application's memory of this many bytes.
    #[inline]
    pub(in crate::coll) fn start_on_fast_path(
        &mut self,
        number: Number,
        msg: &CollectiveMsg,
        flags: OpFlags,
        user_buffers: impl FnOnce(usize) -> UserBuffers,
    ) -> bool {
        let Some(group) = self.groups.get_mut(&number) else {
            return false;
        };
        let Some(fast_collective) = group.fast_collective(msg) else {
            return false;
        };
        let len = match msg.coll {
            Op::Barrier => 0,
            _ => 8,
        };
        let outcome = group.begin(
            &mut self.channels,
            fast_collective,
            user_buffers(len),
            (msg.context, flags),
        );
        self.telemetry
            .groups
            .set_next_sequence(group.stats_slot, group.next_sequence);
        self.running += 1;
        self.idle = 0;
        self.apply_outcome(number, outcome);
        self.poll_channels_once();
        true
    }

    /// Takes the message if the fast path awaits it. Returns whether the message was taken.
    #[inline]
    pub(super) fn receive_on_fast_path(
        &mut self,
        number: Number,
        channel: u32,
        message: &SmallMessage,
    ) -> bool {
        let Some(group) = self.groups.get_mut(&number) else {
            return false;
        };
        if !group.is_awaited(channel, message) {
            return false;
        }
        self.channels.remove_awaited(channel);
        group.combine(message.words[0]);
        match group.exchange(&mut self.channels) {
            Some(ExchangeOutcome::Complete) => {
                if let Some(finished) = group.end() {
                    self.fast_finished.push(finished);
                }
                self.running -= 1;
            }
            outcome => self.apply_outcome(number, outcome),
        }
        true
    }

    #[inline]
    fn apply_outcome(&mut self, number: Number, outcome: Option<ExchangeOutcome>) {
        match outcome {
            None => {}
            Some(ExchangeOutcome::Complete) => {
                let group = self.groups.get_mut(&number);
                if let Some(finished) = group.and_then(Group::end) {
                    self.fast_finished.push(finished);
                }
                self.running -= 1;
            }
            Some(ExchangeOutcome::NeedsSlowPath) => self.continue_on_slow_path(number),
        }
    }

    #[cold]
    fn continue_on_slow_path(&mut self, number: Number) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        group.move_to_slow_path();
        if let Some(sequence) = group.running.last().map(|it| it.sequence) {
            self.advance(number, sequence);
        }
    }

    /// Moves the collectives of all groups to the slow path.
    #[cold]
    pub(super) fn move_all_to_slow_path(&mut self) {
        self.groups.values_mut().for_each(Group::move_to_slow_path);
    }
}
