//! The plans of all members, executed without a fabric, against the results that the man page
//! defines.

use std::collections::HashMap;

use super::*;

/// A member: its three memories and its position in the plan.
struct Member {
    plan: Plan,
    memory: [Vec<u8>; 3],
    round: usize,
    has_sent: bool,
}

impl Member {
    fn new(shape: &Shape, send: Vec<u8>) -> Self {
        let plan = Plan::of(shape);
        let scratch = vec![0xee; plan.scratch];
        let mut member = Self {
            memory: [send, vec![0xdd; shape.writes()], scratch],
            round: 0,
            has_sent: false,
            plan,
        };
        for step in std::mem::take(&mut member.plan.initial) {
            member.step(step);
        }
        member
    }

    fn bytes(&mut self, span: Span) -> &mut [u8] {
        &mut self.memory[span.buffer as usize][span.at..span.at + span.len]
    }

    /// Runs a step; reductions are sums of bytes.
    fn step(&mut self, step: Step) {
        match step {
            Step::Copy { from, to } => {
                assert_eq!(from.len, to.len);
                let bytes = self.bytes(from).to_vec();
                self.bytes(to).copy_from_slice(&bytes);
            }
            Step::Reduce { target, operand } => {
                assert_eq!(target.len, operand.len);
                assert_eq!(target.buffer, Buffer::Scratch);
                assert_eq!(target.at % ALIGN, 0);
                let operand = self.bytes(operand).to_vec();
                let target = self.bytes(target).iter_mut();
                target
                    .zip(operand)
                    .for_each(|(a, b)| *a = a.wrapping_add(b));
            }
        }
    }
}

type Wire = HashMap<(usize, usize, u32), Vec<u8>>;

/// Runs all members in turn until none can continue.
fn run(members: &mut [Member]) {
    let mut wire = Wire::new();
    loop {
        let mut moved = false;
        for (rank, member) in members.iter_mut().enumerate() {
            moved |= turn(member, rank, &mut wire);
        }
        if !moved {
            break;
        }
    }
    for (rank, member) in members.iter().enumerate() {
        assert_eq!(
            member.round,
            member.plan.rounds.len(),
            "rank {rank} has not finished"
        );
    }
    assert!(
        wire.is_empty(),
        "messages that no member received: {:?}",
        wire.keys()
    );
}

fn turn(member: &mut Member, rank: usize, wire: &mut Wire) -> bool {
    let Some(round) = member.plan.rounds.get_mut(member.round) else {
        return false;
    };
    if !std::mem::replace(&mut member.has_sent, true) {
        for message in std::mem::take(&mut round.sends) {
            let key = (rank, message.peer, message.label);
            let bytes = member.bytes(message.span).to_vec();
            assert!(wire.insert(key, bytes).is_none(), "{key:?} twice");
        }
        return true;
    }
    let is_received = |message: &Message| wire.contains_key(&(message.peer, rank, message.label));
    if !round.receives.iter().all(is_received) {
        return false;
    }
    let (receives, after) = (
        std::mem::take(&mut round.receives),
        std::mem::take(&mut round.after),
    );
    for Message { peer, label, span } in receives {
        let bytes = wire.remove(&(peer, rank, label)).unwrap();
        member.bytes(span).copy_from_slice(&bytes);
    }
    after.into_iter().for_each(|step| member.step(step));
    (member.round, member.has_sent) = (member.round + 1, false);
    true
}

/// A byte that depends on the rank and the offset.
fn byte(rank: usize, at: usize) -> u8 {
    (rank * 37 + at * 11 + at / 251 + 5) as u8
}

/// The result of rank `rank`, by the man page.
fn expected(shape: &Shape, rank: usize) -> Vec<u8> {
    let (ranks, len) = (shape.ranks, shape.count * shape.size);
    let sum = |at| (0..ranks).fold(0_u8, |sum, rank| sum.wrapping_add(byte(rank, at)));
    match shape.coll {
        Op::Barrier => Vec::new(),
        Op::Reduce | Op::Gather if rank != shape.root => Vec::new(),
        Op::Broadcast => (0..len).map(|at| byte(shape.root, at)).collect(),
        Op::Scatter => (0..len)
            .map(|at| byte(shape.root, rank * len + at))
            .collect(),
        Op::Alltoall => (0..ranks * len)
            .map(|at| byte(at / len, rank * len + at % len))
            .collect(),
        Op::Allgather | Op::Gather => (0..ranks * len)
            .map(|at| byte(at / len, at % len))
            .collect(),
        Op::Allreduce | Op::Reduce => (0..len).map(sum).collect(),
        Op::ReduceScatter => (0..len).map(|at| sum(rank * len + at)).collect(),
    }
}

fn check(coll: Op, ranks: usize, root: usize, count: usize, size: usize) {
    let shape = |rank| Shape {
        coll,
        rank,
        ranks,
        root,
        count,
        size,
    };
    let mut members: Vec<_> = (0..ranks)
        .map(|rank| {
            let shape = shape(rank);
            let send = (0..shape.reads()).map(|at| byte(rank, at)).collect();
            let mut member = Member::new(&shape, send);
            if coll == Op::Broadcast && rank == root {
                member.memory[1] = (0..shape.writes()).map(|at| byte(rank, at)).collect();
            }
            member
        })
        .collect();
    run(&mut members);
    for (rank, member) in members.iter().enumerate() {
        let wanted = expected(&shape(rank), rank);
        assert!(
            member.memory[1] == wanted,
            "{coll:?} of {ranks}, root {root}, {count} of {size}: rank {rank} has another result"
        );
    }
}

#[test]
fn plans_of_every_size_give_the_result_of_the_man_page() {
    for &coll in Op::ALL {
        for ranks in 1..=17 {
            for (count, size) in [(0, 8), (1, 1), (1, 8), (5, 4), (3, 16), (70, 2)] {
                check(coll, ranks, 0, count, size);
                check(coll, ranks, ranks - 1, count, size);
                check(coll, ranks, ranks / 2, count, size);
            }
        }
    }
}

#[test]
fn plans_of_many_bytes_and_many_members_give_the_same() {
    for &coll in Op::ALL {
        for ranks in [2, 3, 5] {
            check(coll, ranks, ranks - 1, LARGE_BYTES / 8 + 1, 8);
        }
        // More than one window of messages.
        check(coll, 2 * WINDOW + 2, WINDOW, 3, 2);
    }
}

#[test]
fn no_rank_leaves_a_barrier_before_all_have_entered() {
    for ranks in 1..40 {
        // The ranks that each rank depends on, after each round.
        let mut dependencies: Vec<Vec<usize>> = (0..ranks).map(|rank| vec![rank]).collect();
        for (_, steps) in doublings(ranks) {
            let before = dependencies.clone();
            for (rank, dependencies) in dependencies.iter_mut().enumerate() {
                let from = (rank + ranks - steps % ranks) % ranks;
                dependencies.extend(&before[from]);
                dependencies.sort_unstable();
                dependencies.dedup();
            }
        }
        assert!(
            dependencies
                .iter()
                .all(|dependencies| dependencies.len() == ranks)
        );
    }
}
