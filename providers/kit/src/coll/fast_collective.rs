//! The collectives of eight bytes that a group remembers for the fast path, and the running one.

use std::sync::Arc;

use selvedge::atomic::{self, Datatype, Family};
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::{Context, OpFlags};

use super::memory::{Scratch, UserBuffers};
use super::plan::{Plan, Shape, Step};
use super::tag::Number;
use crate::atomic::{Args, Kernel, Single};

/// The precomputed rounds of a collective that a group has run before.
#[derive(Debug)]
pub(super) struct FastCollective {
    pub(super) coll: Op,
    pub(super) datatype: Datatype,
    pub(super) op: atomic::Op,
    pub(super) count: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) rounds: Box<[Exchange]>,
    /// The reduction of two values; none for a barrier.
    pub(super) reduction: Option<Reduction>,
}

/// One round: a message to one member, and a message from another.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) send_channel: u32,
    pub(super) receive_channel: u32,
    /// The number by which the receiver knows the group.
    pub(super) remote_number: Number,
    pub(super) label: u32,
    /// Whether the received value is the left operand.
    pub(super) is_left: bool,
}

#[derive(Debug)]
pub(super) enum Reduction {
    Single(Single),
    /// By a kernel, in scratch memory.
    Kernel(Kernel, Scratch),
}

/// The collective that runs on the fast path.
#[derive(Debug)]
pub(super) struct FastRun {
    pub(super) fast_collective: usize,
    pub(super) sequence: u32,
    pub(super) round: usize,
    /// Whether this round's message was sent and the received one is awaited.
    pub(super) is_awaiting: bool,
    pub(super) value: u64,
    pub(super) user_buffers: UserBuffers,
    pub(super) context: Context,
    pub(super) flags: OpFlags,
}

impl FastCollective {
    /// Precomputes the rounds of a collective. `channel` returns the channel to a member for a
    /// message of a length, and `numbers` has the members' numbers for the group. `None` for a
    /// collective that the fast path cannot run.
    pub(super) fn new(
        msg: &CollectiveMsg,
        shape: &Shape,
        kernel: Option<Kernel>,
        numbers: &[Option<Number>],
        channel: impl Fn(usize, usize) -> Option<u32>,
    ) -> Option<Self> {
        let is_word = match shape.coll {
            Op::Barrier => true,
            Op::Allreduce => shape.result_len() == 8 && shape.ranks.is_power_of_two(),
            _ => false,
        };
        if !is_word || shape.ranks < 2 {
            return None;
        }
        let plan = Arc::new(Plan::new(shape));
        let rounds = plan.rounds.iter().map(|round| {
            let ([receive], [send]) = (&round.receives[..], &round.sends[..]) else {
                return None;
            };
            let is_left = matches!(round.local_steps.first(),
                Some(Step::Reduce { target, .. }) if *target == receive.span);
            Some(Exchange {
                send_channel: channel(send.peer, send.span.len)?,
                receive_channel: channel(receive.peer, receive.span.len)?,
                remote_number: numbers[send.peer]?,
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
    pub(super) fn matches_msg(&self, msg: &CollectiveMsg) -> bool {
        let is_barrier = self.coll == Op::Barrier;
        self.coll == msg.coll
            && (is_barrier
                || self.datatype == msg.datatype && self.op == msg.op && self.count == msg.count)
    }

    pub(super) fn kernel(&self) -> Option<Kernel> {
        let found = crate::atomic::query(Family::Base, self.datatype, self.op).ok();
        found.filter(|_| self.reduction.is_some())
    }
}

impl Reduction {
    #[inline]
    pub(super) fn apply(&self, left: u64, right: u64) -> u64 {
        match self {
            Self::Single(single) => single.value(left, right),
            Self::Kernel(kernel, scratch) => reduce_by_kernel(kernel, scratch, left, right),
        }
    }
}

#[inline(never)]
fn reduce_by_kernel(kernel: &Kernel, scratch: &Scratch, left: u64, right: u64) -> u64 {
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
