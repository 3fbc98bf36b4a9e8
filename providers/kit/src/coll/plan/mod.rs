//! Plans: the rounds of messages and calculations of one member in a collective. A plan touches no
//! memory and sends nothing: the engine executes it, and the tests run plans without a fabric.
//!
//! All members derive their plans from the same numbers, so each message has one sender and one
//! receiver. Results of a reduction are the same at all members to the last bit: where several
//! members calculate a value, all have the lower rank's operand on the left.

use std::ops::Range;

use selvedge::collective::Op;

/// The buffer that a span is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    /// The application's source buffer.
    Send,
    /// The application's result buffer.
    Result,
    /// Scratch memory of the layer.
    Scratch,
}

/// A range of bytes in one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) buffer: Buffer,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// One message. Between two members no two messages of a collective have the same label.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The rank of the other side.
    pub(super) peer: usize,
    pub(super) label: u32,
    pub(super) span: Span,
}

/// A local step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Copy {
        source: Span,
        target: Span,
    },
    /// Changes the elements of `target` by those of `operand`.
    Reduce {
        target: Span,
        operand: Span,
    },
}

/// Messages that are in progress at the same time, and the local steps after all of them are
/// complete.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) receives: Vec<Message>,
    pub(super) sends: Vec<Message>,
    pub(super) local_steps: Vec<Step>,
}

/// The plan of one member.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Steps before the first round.
    pub(super) initial: Vec<Step>,
    pub(super) rounds: Vec<Round>,
    /// The length of the scratch memory in bytes.
    pub(super) scratch: usize,
}

/// The parameters of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) coll: Op,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) root: usize,
    /// The number of elements of each member.
    pub(super) count: usize,
    /// The size of an element in bytes.
    pub(super) size: usize,
}

/// The alignment of elements in scratch memory, which the processor's atomics require.
pub(super) const ALIGN: usize = 16;
/// The largest number of messages in each direction of a round: more would only wait for each
/// other.
const WINDOW: usize = 32;
/// The size in bytes from which a plan minimizes the transferred bytes instead of the messages.
const LARGE_BYTES: usize = 32 << 10;

impl Shape {
    /// The length of a member's elements in bytes.
    fn bytes(&self) -> usize {
        self.count * self.size
    }

    fn is_root(&self) -> bool {
        self.rank == self.root
    }

    /// The length of the application's source buffer in bytes.
    pub(super) fn source_len(&self) -> usize {
        match self.coll {
            Op::Barrier | Op::Broadcast => 0,
            Op::Scatter if !self.is_root() => 0,
            Op::Alltoall | Op::ReduceScatter | Op::Scatter => self.bytes() * self.ranks,
            Op::Allreduce | Op::Allgather | Op::Reduce | Op::Gather => self.bytes(),
        }
    }

    /// The length of the application's result buffer in bytes.
    pub(super) fn result_len(&self) -> usize {
        match self.coll {
            Op::Barrier => 0,
            Op::Reduce | Op::Gather if !self.is_root() => 0,
            Op::Alltoall | Op::Allgather | Op::Gather => self.bytes() * self.ranks,
            Op::Broadcast | Op::Allreduce | Op::ReduceScatter | Op::Reduce | Op::Scatter => {
                self.bytes()
            }
        }
    }

    /// The slice of one rank in a buffer with the slices of all ranks.
    fn slice(&self, buffer: Buffer, rank: usize) -> Span {
        let len = self.bytes();
        Span {
            buffer,
            offset: rank * len,
            len,
        }
    }

    fn rank_after(&self, steps: usize) -> usize {
        (self.rank + steps) % self.ranks
    }

    fn rank_before(&self, steps: usize) -> usize {
        (self.rank + self.ranks - steps) % self.ranks
    }

    /// The range of bytes that one rank reduces for all.
    fn share(&self, rank: usize) -> Range<usize> {
        let bound = |rank: usize| {
            let elements = self.count as u128 * rank as u128 / self.ranks as u128;
            elements as usize * self.size
        };
        bound(rank)..bound(rank + 1)
    }
}

impl Plan {
    pub(super) fn new(shape: &Shape) -> Self {
        let mut plan = Self::default();
        let is_large = shape.bytes() >= LARGE_BYTES && shape.ranks > 2;
        match shape.coll {
            Op::Barrier => plan.barrier(shape),
            Op::Broadcast if is_large => plan.broadcast_in_shares(shape),
            Op::Broadcast => plan.broadcast(shape),
            Op::Alltoall => plan.alltoall(shape),
            Op::Allreduce if is_large => plan.allreduce_in_shares(shape),
            Op::Allreduce => plan.allreduce(shape),
            Op::Allgather if shape.result_len() < LARGE_BYTES => plan.allgather_doubling(shape),
            Op::Allgather => plan.allgather(shape),
            Op::ReduceScatter => plan.reduce_scatter(shape),
            Op::Reduce => plan.reduce(shape),
            Op::Scatter => plan.scatter(shape),
            Op::Gather => plan.gather(shape),
        }
        plan
    }

    /// Allocates scratch memory for `len` bytes of elements.
    fn scratch(&mut self, len: usize) -> Span {
        let offset = self.scratch;
        self.scratch += len.next_multiple_of(ALIGN);
        Span {
            buffer: Buffer::Scratch,
            offset,
            len,
        }
    }

    fn copy_to_scratch(&mut self, source: Span) -> Span {
        let target = self.scratch(source.len);
        self.initial.push(Step::Copy { source, target });
        target
    }

    /// After step number k, every member depends on 2^(k+1) - 1 others, directly or indirectly
    /// (Hensgen, Finkel and Manber, 1988).
    fn barrier(&mut self, shape: &Shape) {
        let word = self.scratch(2 * ALIGN);
        for (label, steps) in doublings(shape.ranks) {
            let message = |peer, offset| Message {
                peer,
                label,
                span: Span {
                    offset,
                    len: 8,
                    ..word
                },
            };
            self.rounds.push(Round {
                receives: vec![message(shape.rank_before(steps), ALIGN)],
                sends: vec![message(shape.rank_after(steps), 0)],
                local_steps: Vec::new(),
            });
        }
    }

    /// A binomial tree.
    fn broadcast(&mut self, shape: &Shape) {
        let span = shape.slice(Buffer::Result, 0);
        let tree = Tree::new(shape);
        let message = |peer| Message {
            peer,
            label: 0,
            span,
        };
        self.add_round(tree.parent.map(message), None);
        self.add_round(None, tree.children.iter().rev().map(|&peer| message(peer)));
    }

    /// Each member gets a share from the root and passes it on to all others (van de Geijn, 1994).
    fn broadcast_in_shares(&mut self, shape: &Shape) {
        let len = shape.bytes();
        let share = |rank: usize| {
            let bound = |rank: usize| (len as u128 * rank as u128 / shape.ranks as u128) as usize;
            Span {
                buffer: Buffer::Result,
                offset: bound(rank),
                len: bound(rank + 1) - bound(rank),
            }
        };
        let message = |label, peer, rank| Message {
            peer,
            label,
            span: share(rank),
        };
        let others = (1..shape.ranks).map(|steps| shape.rank_after(steps));
        if shape.is_root() {
            self.windowed_rounds([], others.map(|rank| message(0, rank, rank)))
        } else {
            self.add_round(Some(message(0, shape.root, shape.rank)), None)
        }
        let receives = (1..shape.ranks).map(|steps| shape.rank_before(steps));
        let sends = (1..shape.ranks).map(|steps| shape.rank_after(steps));
        // The root has all shares and receives none; its own share reaches no other member before
        // this step.
        let receives = receives.filter(|_| !shape.is_root());
        let sends = sends.filter(|&rank| rank != shape.root);
        self.windowed_rounds(
            receives.map(|rank| message(1, rank, rank)),
            sends.map(|rank| message(1, rank, shape.rank)),
        );
    }

    /// Each slice goes directly to its destination.
    fn alltoall(&mut self, shape: &Shape) {
        self.copy_local_slice(shape, Buffer::Send, Buffer::Result);
        let message = |buffer| {
            move |rank| Message {
                peer: rank,
                label: 0,
                span: shape.slice(buffer, rank),
            }
        };
        let receives = (1..shape.ranks).map(|steps| shape.rank_before(steps));
        let sends = (1..shape.ranks).map(|steps| shape.rank_after(steps));
        self.windowed_rounds(
            receives.map(message(Buffer::Result)),
            sends.map(message(Buffer::Send)),
        );
    }

    /// Copies the member's slice from one of its buffers to another.
    fn copy_local_slice(&mut self, shape: &Shape, source: Buffer, target: Buffer) {
        let (source, target) = (
            shape.slice(source, shape.rank),
            shape.slice(target, shape.rank),
        );
        self.initial.push(Step::Copy { source, target });
    }

    /// Recursive doubling: pairs, then pairs of pairs, and so on exchange their values. Each member
    /// beyond the largest power of two first sends its value to a neighbour, and later receives the
    /// result from it.
    fn allreduce(&mut self, shape: &Shape) {
        let (rank, ranks) = (shape.rank, shape.ranks);
        let mut local = self.copy_to_scratch(shape.slice(Buffer::Send, 0));
        let mut received = self.scratch(local.len);
        let result = shape.slice(Buffer::Result, 0);
        let power = 1 << ranks.ilog2();
        let extra = ranks - power;
        let message = |peer, label, span| Message { peer, label, span };
        let position = match rank {
            _ if rank >= 2 * extra => rank - extra,
            _ if rank.is_multiple_of(2) => {
                self.add_round(Some(message(rank + 1, 0, received)), None);
                self.add_step(Step::Reduce {
                    target: local,
                    operand: received,
                });
                rank / 2
            }
            _ => {
                self.add_round(None, Some(message(rank - 1, 0, local)));
                self.add_round(Some(message(rank - 1, FOLDED, result)), None);
                return;
            }
        };
        for (label, steps) in doublings(power) {
            let partner = position ^ steps;
            let peer = if partner < extra {
                partner * 2
            } else {
                partner + extra
            };
            let (receive, send) = (
                message(peer, label + 1, received),
                message(peer, label + 1, local),
            );
            self.add_round(Some(receive), Some(send));
            if partner < position {
                std::mem::swap(&mut local, &mut received);
            }
            self.add_step(Step::Reduce {
                target: local,
                operand: received,
            });
        }
        self.add_step(Step::Copy {
            source: local,
            target: result,
        });
        if rank < 2 * extra {
            self.add_round(None, Some(message(rank + 1, FOLDED, local)));
        }
    }

    /// Each member reduces one share for all.
    fn allreduce_in_shares(&mut self, shape: &Shape) {
        let share = |buffer, rank: usize| {
            let Range { start, end } = shape.share(rank);
            Span {
                buffer,
                offset: start,
                len: end - start,
            }
        };
        let accumulator = self.copy_to_scratch(share(Buffer::Send, shape.rank));
        let operands = |rank| share(Buffer::Send, rank);
        self.reduce_from_all(shape, accumulator, operands);
        let result = |rank| share(Buffer::Result, rank);
        self.add_step(Step::Copy {
            source: accumulator,
            target: result(shape.rank),
        });
        let message = |peer, span| Message {
            peer,
            label: 1,
            span,
        };
        let receives = (1..shape.ranks).map(|steps| shape.rank_before(steps));
        let sends = (1..shape.ranks).map(|steps| shape.rank_after(steps));
        self.windowed_rounds(
            receives.map(|rank| message(rank, result(rank))),
            sends.map(|rank| message(rank, accumulator)),
        );
    }

    /// Sends each member the operand that it reduces, and reduces the received operands into
    /// `accumulator`.
    fn reduce_from_all(
        &mut self,
        shape: &Shape,
        accumulator: Span,
        operand: impl Fn(usize) -> Span,
    ) {
        let slots: Vec<_> = (0..WINDOW.min(shape.ranks - 1))
            .map(|_| self.scratch(accumulator.len))
            .collect();
        let steps: Vec<_> = (1..shape.ranks).collect();
        for window in steps.chunks(WINDOW) {
            let message = |peer, span| Message {
                peer,
                label: 0,
                span,
            };
            let receives = window.iter().zip(&slots);
            let reduce = |&operand| Step::Reduce {
                target: accumulator,
                operand,
            };
            self.rounds.push(Round {
                receives: receives
                    .map(|(&steps, &slot)| message(shape.rank_before(steps), slot))
                    .collect(),
                sends: window
                    .iter()
                    .map(|&steps| shape.rank_after(steps))
                    .map(|rank| message(rank, operand(rank)))
                    .collect(),
                local_steps: slots[..window.len()].iter().map(reduce).collect(),
            });
        }
    }

    fn reduce_scatter(&mut self, shape: &Shape) {
        let accumulator = self.copy_to_scratch(shape.slice(Buffer::Send, shape.rank));
        self.reduce_from_all(shape, accumulator, |rank| shape.slice(Buffer::Send, rank));
        self.add_step(Step::Copy {
            source: accumulator,
            target: shape.slice(Buffer::Result, 0),
        });
    }

    /// Each step doubles the number of gathered slices and the distance of the peer (Bruck and
    /// others, 1997).
    fn allgather_doubling(&mut self, shape: &Shape) {
        let len = shape.bytes();
        let all = self.scratch(len * shape.ranks);
        let part = |first: usize, count: usize| Span {
            offset: all.offset + first * len,
            len: count * len,
            ..all
        };
        self.initial.push(Step::Copy {
            source: shape.slice(Buffer::Send, 0),
            target: part(0, 1),
        });
        for (label, steps) in doublings(shape.ranks) {
            let count = steps.min(shape.ranks - steps);
            let message = |peer, span| Message { peer, label, span };
            self.add_round(
                Some(message(shape.rank_after(steps), part(steps, count))),
                Some(message(shape.rank_before(steps), part(0, count))),
            );
        }
        for steps in 0..shape.ranks {
            self.add_step(Step::Copy {
                source: part(steps, 1),
                target: shape.slice(Buffer::Result, shape.rank_after(steps)),
            });
        }
    }

    fn allgather(&mut self, shape: &Shape) {
        self.initial.push(Step::Copy {
            source: shape.slice(Buffer::Send, 0),
            target: shape.slice(Buffer::Result, shape.rank),
        });
        let message = |peer, span| Message {
            peer,
            label: 0,
            span,
        };
        let receives = (1..shape.ranks).map(|steps| shape.rank_before(steps));
        let sends = (1..shape.ranks).map(|steps| shape.rank_after(steps));
        self.windowed_rounds(
            receives.map(|rank| message(rank, shape.slice(Buffer::Result, rank))),
            sends.map(|rank| message(rank, shape.slice(Buffer::Send, 0))),
        );
    }

    /// A binomial tree from the leaves to the root.
    fn reduce(&mut self, shape: &Shape) {
        let accumulator = self.copy_to_scratch(shape.slice(Buffer::Send, 0));
        let tree = Tree::new(shape);
        let slots: Vec<_> = tree
            .children
            .iter()
            .map(|_| self.scratch(accumulator.len))
            .collect();
        let message = |peer, span| Message {
            peer,
            label: 0,
            span,
        };
        let receives = tree.children.iter().zip(&slots);
        self.add_round(receives.map(|(&peer, &slot)| message(peer, slot)), None);
        for &operand in &slots {
            self.add_step(Step::Reduce {
                target: accumulator,
                operand,
            });
        }
        match tree.parent {
            Some(parent) => self.add_round(None, Some(message(parent, accumulator))),
            None => self.add_step(Step::Copy {
                source: accumulator,
                target: shape.slice(Buffer::Result, 0),
            }),
        }
    }

    fn scatter(&mut self, shape: &Shape) {
        let result = shape.slice(Buffer::Result, 0);
        let message = |peer, span| Message {
            peer,
            label: 0,
            span,
        };
        if !shape.is_root() {
            return self.add_round(Some(message(shape.root, result)), None);
        }
        self.initial.push(Step::Copy {
            source: shape.slice(Buffer::Send, shape.rank),
            target: result,
        });
        let others = (1..shape.ranks).map(|steps| shape.rank_after(steps));
        self.windowed_rounds(
            [],
            others.map(|rank| message(rank, shape.slice(Buffer::Send, rank))),
        );
    }

    fn gather(&mut self, shape: &Shape) {
        let local = shape.slice(Buffer::Send, 0);
        let message = |peer, span| Message {
            peer,
            label: 0,
            span,
        };
        if !shape.is_root() {
            return self.add_round(None, Some(message(shape.root, local)));
        }
        self.initial.push(Step::Copy {
            source: local,
            target: shape.slice(Buffer::Result, shape.rank),
        });
        let others = (1..shape.ranks).map(|steps| shape.rank_before(steps));
        self.windowed_rounds(
            others.map(|rank| message(rank, shape.slice(Buffer::Result, rank))),
            [],
        );
    }

    /// Adds a round, unless it has no message.
    fn add_round(
        &mut self,
        receives: impl IntoIterator<Item = Message>,
        sends: impl IntoIterator<Item = Message>,
    ) {
        let round = Round {
            receives: receives.into_iter().collect(),
            sends: sends.into_iter().collect(),
            local_steps: Vec::new(),
        };
        if !(round.receives.is_empty() && round.sends.is_empty()) {
            self.rounds.push(round);
        }
    }

    /// Adds rounds of at most `WINDOW` messages each.
    fn windowed_rounds(
        &mut self,
        receives: impl IntoIterator<Item = Message>,
        sends: impl IntoIterator<Item = Message>,
    ) {
        let (mut receives, mut sends) = (receives.into_iter(), sends.into_iter());
        loop {
            let before = self.rounds.len();
            let receives = receives.by_ref().take(WINDOW);
            self.add_round(receives, sends.by_ref().take(WINDOW));
            if self.rounds.len() == before {
                return;
            }
        }
    }

    /// Adds a step after the last round so far; before the first round, if there is none.
    fn add_step(&mut self, step: Step) {
        match self.rounds.last_mut() {
            Some(round) => round.local_steps.push(step),
            None => self.initial.push(step),
        }
    }
}

/// The label of results that go to members beyond the largest power of two.
const FOLDED: u32 = 64;

/// The powers of two below `ranks`, numbered from 0.
fn doublings(ranks: usize) -> impl Iterator<Item = (u32, usize)> {
    (0..)
        .map(|k| (k, 1 << k))
        .take_while(move |&(_, steps)| steps < ranks)
}

/// A member's neighbours in a binomial tree below the root. The nearest child comes first.
struct Tree {
    parent: Option<usize>,
    children: Vec<usize>,
}

impl Tree {
    fn new(shape: &Shape) -> Self {
        let ranks = shape.ranks;
        let position = (shape.rank + ranks - shape.root) % ranks;
        let rank_at = |position: usize| (position + shape.root) % ranks;
        let lowest = match position {
            0 => ranks,
            position => 1 << position.trailing_zeros(),
        };
        let steps = doublings(ranks).map(|(_, steps)| steps);
        let children = steps.take_while(|&steps| steps < lowest);
        let children = children.map(|steps| position + steps);
        Self {
            parent: (position > 0).then(|| rank_at(position & (position - 1))),
            children: children
                .filter(|&child| child < ranks)
                .map(rank_at)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests;
