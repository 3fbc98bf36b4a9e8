//! The short way of collectives of eight bytes: barriers, and all-reduces among a power of two
//! members, where every round is a letter to one member and a letter from one.
//!
//! What is known of such a collective beforehand is remembered with its group, and one at a time is
//! carried out without a copy of its plan, memory of ours or a place among those that are under way.
//! On the lanes it is what the plan says, so no member need know which way another takes. Whenever
//! anything is not as usual (no room, a loss, a long wait, another collective behind it) it is handed
//! over to the general way, which goes on where it was.

use std::sync::Arc;

use selvedge::atomic::{self, Datatype, Family};
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::{Context, OpFlags};

use super::channel::{Channels, SmallMessage};
use super::engine::State;
use super::group::{Group, Running};
use super::memory::{Memory, Scratch, UserBuffers};
use super::plan::{Plan, Shape, Step};
use super::tag::{self, Number};
use crate::atomic::{Args, Kernel, Single};

/// A collective that a group has carried out before.
#[derive(Debug)]
pub(super) struct FastCollective {
    coll: Op,
    datatype: Datatype,
    op: atomic::Op,
    count: usize,
    plan: Arc<Plan>,
    rounds: Box<[Exchange]>,
    /// What makes one value of two; none for a barrier.
    reduction: Option<Reduction>,
}

/// A round.
#[derive(Debug)]
struct Exchange {
    to: u32,
    from: u32,
    /// The number that the receiver of our letter knows the group by.
    remote_number: Number,
    label: u32,
    /// Whether the other's value stands on the left.
    is_left: bool,
}

#[derive(Debug)]
enum Reduction {
    Single(Single),
    /// By the tables, in memory of its own.
    Kernel(Kernel, Scratch),
}

/// The one that is under way.
#[derive(Debug)]
pub(super) struct FastRun {
    fast_collective: usize,
    pub(super) sequence: u32,
    round: usize,
    /// Whether the letter of this round is awaited, and ours was put.
    is_awaiting: bool,
    value: u64,
    user_buffers: UserBuffers,
    context: Context,
    flags: OpFlags,
}

/// Collectives that a group remembers.
const MAX_REMEMBERED: usize = 4;

impl FastCollective {
    fn new(
        group: &Group,
        msg: &CollectiveMsg,
        shape: &Shape,
        kernel: Option<Kernel>,
    ) -> Option<Self> {
        let is_word = match shape.coll {
            Op::Barrier => true,
            Op::Allreduce => shape.writes() == 8 && shape.ranks.is_power_of_two(),
            _ => false,
        };
        if !is_word || shape.ranks < 2 {
            return None;
        }
        let plan = Arc::new(Plan::of(shape));
        let rounds = plan.rounds.iter().map(|round| {
            let ([receive], [send]) = (&round.receives[..], &round.sends[..]) else {
                return None;
            };
            let is_left = matches!(round.after.first(),
                Some(Step::Reduce { target, .. }) if *target == receive.span);
            Some(Exchange {
                to: group.channel(send.peer, send.span.len)?,
                from: group.channel(receive.peer, receive.span.len)?,
                remote_number: group.numbers[send.peer]?,
                label: send.label,
                is_left,
            })
        });
        let reduction = kernel.map(
            |kernel| match Single::of(Family::Base, msg.datatype, msg.op) {
                Some(single) => Reduction::Single(single),
                None => Reduction::Kernel(kernel, Scratch::new(8)),
            },
        );
        Some(Self {
            coll: shape.coll,
            datatype: msg.datatype,
            op: msg.op,
            count: msg.count,
            rounds: rounds.collect::<Option<_>>()?,
            reduction,
            plan,
        })
    }

    #[inline]
    fn matches_msg(&self, msg: &CollectiveMsg) -> bool {
        let is_barrier = self.coll == Op::Barrier;
        self.coll == msg.coll
            && (is_barrier
                || self.datatype == msg.datatype && self.op == msg.op && self.count == msg.count)
    }

    fn kernel(&self) -> Option<Kernel> {
        let found = crate::atomic::query(Family::Base, self.datatype, self.op).ok();
        found.filter(|_| self.reduction.is_some())
    }
}

impl Reduction {
    #[inline]
    fn apply(&self, left: u64, right: u64) -> u64 {
        match self {
            Self::Single(single) => single.value(left, right),
            Self::Kernel(kernel, scratch) => by_kernel(kernel, scratch, left, right),
        }
    }
}

#[inline(never)]
fn by_kernel(kernel: &Kernel, scratch: &Scratch, left: u64, right: u64) -> u64 {
    scratch.set_word(0, left);
    let args = Args {
        operand: &right.to_ne_bytes(),
        compare: &[],
        result: &mut [],
    };
    let done = kernel.apply(scratch.word_bytes(0), args);
    done.expect("elements are aligned in scratch memory");
    scratch.word(0)
}

impl Group {
    /// Which remembered collective this is, if it can go the short way now.
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

    /// Remembers a collective for the next time.
    pub(super) fn remember(&mut self, msg: &CollectiveMsg, shape: &Shape, kernel: Option<Kernel>) {
        if self.channels.is_empty()
            || self
                .fast_collectives
                .iter()
                .any(|fast_collective| fast_collective.matches_msg(msg))
        {
            return;
        }
        if let Some(fast_collective) = FastCollective::new(self, msg, shape, kernel) {
            if self.fast_collectives.len() == MAX_REMEMBERED {
                self.fast_collectives.remove(0);
            }
            self.fast_collectives.push(fast_collective);
        }
    }

    /// Puts the letter of the round that begins, and the next ones as long as their answers are here.
    /// `None` when the collective is not over and nothing is wrong.
    #[inline]
    fn exchange(&mut self, channels: &mut Channels) -> Option<ExchangeOutcome> {
        let number = self.number;
        loop {
            let fast_run = self.fast_run.as_mut()?;
            let fast_collective = &self.fast_collectives[fast_run.fast_collective];
            let Some(round) = fast_collective.rounds.get(fast_run.round) else {
                return Some(ExchangeOutcome::Complete);
            };
            let early = match self.early.is_empty() {
                true => None,
                false => {
                    let tag = tag::data(number, fast_run.sequence, round.label);
                    self.early.get(&(round.from, tag)).copied()
                }
            };
            if early.is_some_and(|message| message.len != 8) {
                return Some(ExchangeOutcome::NeedsSlowPath);
            }
            let tag = tag::data(round.remote_number, fast_run.sequence, round.label);
            if channels
                .send(round.to, &SmallMessage::word(tag, fast_run.value))
                .is_err()
            {
                return Some(ExchangeOutcome::NeedsSlowPath);
            }
            let Some(message) = early else {
                fast_run.is_awaiting = true;
                channels.add_awaited(round.from);
                return None;
            };
            let from = round.from;
            self.early.remove(&(from, message.tag));
            channels.remove_early(from);
            self.combine(message.words[0]);
        }
    }

    /// Ends a round.
    #[inline]
    fn combine(&mut self, word: u64) {
        let Some(fast_run) = &mut self.fast_run else {
            return;
        };
        let fast_collective = &self.fast_collectives[fast_run.fast_collective];
        if let Some(reduction) = &fast_collective.reduction {
            fast_run.value = match fast_collective.rounds[fast_run.round].is_left {
                true => reduction.apply(word, fast_run.value),
                false => reduction.apply(fast_run.value, word),
            };
        }
        (fast_run.round, fast_run.is_awaiting) = (fast_run.round + 1, false);
    }

    /// Whether a letter is the one that the short way waits for.
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
        round.from == channel
            && message.len == 8
            && message.tag == tag::data(self.number, fast_run.sequence, round.label)
    }

    /// Hands what is under way over to the general way.
    pub(super) fn move_to_slow_path(&mut self) {
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
            let own = memory.part(round.sends[0].span);
            own.write(&fast_run.value.to_ne_bytes());
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
            since: 0,
            context: fast_run.context,
            flags: fast_run.flags,
        });
    }
}

/// What has come of a turn.
#[derive(Clone, Copy, Debug)]
enum ExchangeOutcome {
    Complete,
    NeedsSlowPath,
}

impl Group {
    /// Begins a collective that is remembered as number `fast_collective`.
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

    /// Writes the result.
    #[inline]
    fn end(&mut self) -> Option<(Context, OpFlags)> {
        let fast_run = self.fast_run.take()?;
        fast_run.user_buffers.set_word(fast_run.value);
        Some((fast_run.context, fast_run.flags))
    }
}

impl State {
    /// Begins a collective, if its group remembers it and it can go the short way now. `user_buffers` says
    /// where the memory of so many bytes is.
    #[inline]
    pub(super) fn start_on_fast_path(
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

    /// Takes a letter that the short way waits for. Whether it did.
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

    /// Has every group go the general way.
    #[cold]
    pub(super) fn move_all_to_slow_path(&mut self) {
        self.groups.values_mut().for_each(Group::move_to_slow_path);
    }
}
