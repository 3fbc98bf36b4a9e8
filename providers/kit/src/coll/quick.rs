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

use super::engine::State;
use super::group::{Group, Running};
use super::lane::{Letter, Roads};
use super::memory::{Ends, Memory, Scratch};
use super::plan::{Plan, Shape, Step};
use super::tag::{self, Number};
use crate::atomic::{Args, Kernel, Single};

/// A collective that a group has carried out before.
#[derive(Debug)]
pub(super) struct Quick {
    coll: Op,
    datatype: Datatype,
    op: atomic::Op,
    count: usize,
    plan: Arc<Plan>,
    rounds: Box<[Exchange]>,
    /// What makes one value of two; none for a barrier.
    sum: Option<Sum>,
}

/// A round.
#[derive(Debug)]
struct Exchange {
    to: u32,
    from: u32,
    /// The number that the receiver of our letter knows the group by.
    theirs: Number,
    label: u32,
    /// Whether the other's value stands on the left.
    is_left: bool,
}

#[derive(Debug)]
enum Sum {
    Single(Single),
    /// By the tables, in memory of its own.
    Kernel(Kernel, Scratch),
}

/// The one that is under way.
#[derive(Debug)]
pub(super) struct Under {
    quick: usize,
    pub(super) sequence: u32,
    round: usize,
    /// Whether the letter of this round is awaited, and ours was put.
    expects: bool,
    value: u64,
    ends: Ends,
    context: Context,
    flags: OpFlags,
}

/// Collectives that a group remembers.
const MOST: usize = 4;

impl Quick {
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
            let is_left = matches!(round.then.first(),
                Some(Step::Reduce { target, .. }) if *target == receive.span);
            Some(Exchange {
                to: group.lane(send.peer, send.span.len)?,
                from: group.lane(receive.peer, receive.span.len)?,
                theirs: group.numbers[send.peer]?,
                label: send.label,
                is_left,
            })
        });
        let sum = kernel.map(
            |kernel| match Single::of(Family::Base, msg.datatype, msg.op) {
                Some(single) => Sum::Single(single),
                None => Sum::Kernel(kernel, Scratch::new(8)),
            },
        );
        Some(Self {
            coll: shape.coll,
            datatype: msg.datatype,
            op: msg.op,
            count: msg.count,
            rounds: rounds.collect::<Option<_>>()?,
            sum,
            plan,
        })
    }

    #[inline]
    fn is(&self, msg: &CollectiveMsg) -> bool {
        let is_barrier = self.coll == Op::Barrier;
        self.coll == msg.coll
            && (is_barrier
                || self.datatype == msg.datatype && self.op == msg.op && self.count == msg.count)
    }

    fn kernel(&self) -> Option<Kernel> {
        let found = crate::atomic::query(Family::Base, self.datatype, self.op).ok();
        found.filter(|_| self.sum.is_some())
    }
}

impl Sum {
    #[inline]
    fn of(&self, left: u64, right: u64) -> u64 {
        match self {
            Self::Single(single) => single.value(left, right),
            Self::Kernel(kernel, scratch) => by_tables(kernel, scratch, left, right),
        }
    }
}

#[inline(never)]
fn by_tables(kernel: &Kernel, scratch: &Scratch, left: u64, right: u64) -> u64 {
    scratch.set_word(0, left);
    let args = Args {
        operand: &right.to_ne_bytes(),
        compare: &[],
        result: &mut [],
    };
    let done = kernel.apply(scratch.place(0), args);
    done.expect("elements are aligned in scratch memory");
    scratch.word(0)
}

impl Group {
    /// Which remembered collective this is, if it can go the short way now.
    #[inline]
    fn quick(&self, msg: &CollectiveMsg) -> Option<usize> {
        let is_busy = self.under.is_some() || !self.running.is_empty();
        if is_busy || self.is_left || self.broken.is_some() || self.quicks.is_empty() {
            return None;
        }
        let has_memory = msg.coll == Op::Barrier || !msg.buf.is_null() && !msg.result.is_null();
        let found = self.quicks.iter().position(|quick| quick.is(msg));
        found.filter(|_| has_memory)
    }

    /// Remembers a collective for the next time.
    pub(super) fn learn(&mut self, msg: &CollectiveMsg, shape: &Shape, kernel: Option<Kernel>) {
        if self.lanes.is_empty() || self.quicks.iter().any(|quick| quick.is(msg)) {
            return;
        }
        if let Some(quick) = Quick::new(self, msg, shape, kernel) {
            if self.quicks.len() == MOST {
                self.quicks.remove(0);
            }
            self.quicks.push(quick);
        }
    }

    /// Puts the letter of the round that begins, and the next ones as long as their answers are here.
    /// `None` when the collective is not over and nothing is wrong.
    #[inline]
    fn exchange(&mut self, roads: &mut Roads) -> Option<Turn> {
        let number = self.number;
        loop {
            let under = self.under.as_mut()?;
            let quick = &self.quicks[under.quick];
            let Some(round) = quick.rounds.get(under.round) else {
                return Some(Turn::Over);
            };
            let early = match self.early.is_empty() {
                true => None,
                false => {
                    let tag = tag::data(number, under.sequence, round.label);
                    self.early.get(&(round.from, tag)).copied()
                }
            };
            if early.is_some_and(|letter| letter.len != 8) {
                return Some(Turn::Unusual);
            }
            let tag = tag::data(round.theirs, under.sequence, round.label);
            if roads
                .put(round.to, &Letter::word(tag, under.value))
                .is_err()
            {
                return Some(Turn::Unusual);
            }
            let Some(letter) = early else {
                under.expects = true;
                roads.expect(round.from);
                return None;
            };
            let from = round.from;
            self.early.remove(&(from, letter.tag));
            roads.let_go(from);
            self.combine(letter.words[0]);
        }
    }

    /// Ends a round.
    #[inline]
    fn combine(&mut self, word: u64) {
        let Some(under) = &mut self.under else {
            return;
        };
        let quick = &self.quicks[under.quick];
        if let Some(sum) = &quick.sum {
            under.value = match quick.rounds[under.round].is_left {
                true => sum.of(word, under.value),
                false => sum.of(under.value, word),
            };
        }
        (under.round, under.expects) = (under.round + 1, false);
    }

    /// Whether a letter is the one that the short way waits for.
    #[inline]
    fn is_awaited(&self, lane: u32, letter: &Letter) -> bool {
        let Some(under) = self.under.as_ref().filter(|under| under.expects) else {
            return false;
        };
        let round = &self.quicks[under.quick].rounds[under.round];
        round.from == lane
            && letter.len == 8
            && letter.tag == tag::data(self.number, under.sequence, round.label)
    }

    /// Hands what is under way over to the general way.
    pub(super) fn hand_over(&mut self) {
        let Some(under) = self.under.take() else {
            return;
        };
        let quick = &self.quicks[under.quick];
        let (coll, plan, kernel) = (quick.coll, Arc::clone(&quick.plan), quick.kernel());
        let memory = Memory::new(under.ends, self.scratch(plan.scratch));
        if let Some(round) = plan.rounds.get(under.round) {
            let own = memory.part(round.sends[0].span);
            own.write(&under.value.to_ne_bytes());
        }
        let is_posted = usize::from(under.expects);
        self.running.push(Running {
            coll,
            sequence: under.sequence,
            plan,
            kernel,
            memory,
            round: under.round,
            posted: 2 * is_posted,
            open: is_posted,
            awaited: is_posted as u32,
            failure: None,
            has_pinged: false,
            since: 0,
            context: under.context,
            flags: under.flags,
        });
    }
}

/// What has come of a turn.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Over,
    Unusual,
}

impl Group {
    /// Begins a collective that is remembered as number `quick`.
    #[inline]
    fn begin(
        &mut self,
        roads: &mut Roads,
        quick: usize,
        ends: Ends,
        (context, flags): (Context, OpFlags),
    ) -> Option<Turn> {
        let sequence = self.next_sequence;
        self.next_sequence = (sequence + 1) & tag::SEQUENCE;
        self.under = Some(Under {
            quick,
            sequence,
            round: 0,
            expects: false,
            value: ends.word(),
            ends,
            context,
            flags,
        });
        self.exchange(roads)
    }

    /// Writes the result.
    #[inline]
    fn end(&mut self) -> Option<(Context, OpFlags)> {
        let under = self.under.take()?;
        under.ends.set_word(under.value);
        Some((under.context, under.flags))
    }
}

impl State {
    /// Begins a collective, if its group remembers it and it can go the short way now. `ends` says
    /// where the memory of so many bytes is.
    #[inline]
    pub(super) fn start_quickly(
        &mut self,
        number: Number,
        msg: &CollectiveMsg,
        flags: OpFlags,
        ends: impl FnOnce(usize) -> Ends,
    ) -> bool {
        let Some(group) = self.groups.get_mut(&number) else {
            return false;
        };
        let Some(quick) = group.quick(msg) else {
            return false;
        };
        let len = match msg.coll {
            Op::Barrier => 0,
            _ => 8,
        };
        let turn = group.begin(&mut self.roads, quick, ends(len), (msg.context, flags));
        self.sight.groups.begun(group.sight, group.next_sequence);
        self.running += 1;
        self.idle = 0;
        self.turned(number, turn);
        self.take_letters();
        true
    }

    /// Takes a letter that the short way waits for. Whether it did.
    #[inline]
    pub(super) fn arrived_quickly(&mut self, number: Number, lane: u32, letter: &Letter) -> bool {
        let Some(group) = self.groups.get_mut(&number) else {
            return false;
        };
        if !group.is_awaited(lane, letter) {
            return false;
        }
        self.roads.had(lane);
        group.combine(letter.words[0]);
        match group.exchange(&mut self.roads) {
            Some(Turn::Over) => {
                if let Some(ended) = group.end() {
                    self.well.push(ended);
                }
                self.running -= 1;
            }
            turn => self.turned(number, turn),
        }
        true
    }

    #[inline]
    fn turned(&mut self, number: Number, turn: Option<Turn>) {
        match turn {
            None => {}
            Some(Turn::Over) => {
                let group = self.groups.get_mut(&number);
                if let Some(ended) = group.and_then(Group::end) {
                    self.well.push(ended);
                }
                self.running -= 1;
            }
            Some(Turn::Unusual) => self.go_the_general_way(number),
        }
    }

    #[cold]
    fn go_the_general_way(&mut self, number: Number) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        group.hand_over();
        if let Some(sequence) = group.running.last().map(|it| it.sequence) {
            self.advance(number, sequence);
        }
    }

    /// Has every group go the general way.
    #[cold]
    pub(super) fn hand_all_over(&mut self) {
        self.groups.values_mut().for_each(Group::hand_over);
    }
}
