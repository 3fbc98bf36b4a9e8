//! Executes the plans of all members without a fabric, and compares the results with those that the
//! man page defines.

use std::collections::HashMap;

use super::*;

/// A member: its three buffers and its position in the plan.
struct Member {
    plan: Plan,
    memory: [Vec<u8>; 3],
    round: usize,
    has_sent: bool,
}

impl Member {
    fn new(shape: &Shape, send: Vec<u8>) -> Self {
        let plan = Plan::new(shape);
        let scratch = vec![0xee; plan.scratch];
        let mut member = Self {
            memory: [send, vec![0xdd; shape.result_len()], scratch],
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
        &mut self.memory[span.buffer as usize][span.offset..span.offset + span.len]
    }

    /// Runs a step; reductions are sums of bytes.
    fn step(&mut self, step: Step) {
        match step {
            Step::Copy { source, target } => {
                assert_eq!(source.len, target.len);
                let bytes = self.bytes(source).to_vec();
                self.bytes(target).copy_from_slice(&bytes);
            }
            Step::Reduce { target, operand } => {
                assert_eq!(target.len, operand.len);
                assert_eq!(target.buffer, Buffer::Scratch);
                assert_eq!(target.offset % ALIGN, 0);
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
        let mut has_progressed = false;
        for (rank, member) in members.iter_mut().enumerate() {
            has_progressed |= run_turn(member, rank, &mut wire);
        }
        if !has_progressed {
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

fn run_turn(member: &mut Member, rank: usize, wire: &mut Wire) -> bool {
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
    let (receives, local_steps) = (
        std::mem::take(&mut round.receives),
        std::mem::take(&mut round.local_steps),
    );
    for Message { peer, label, span } in receives {
        let bytes = wire.remove(&(peer, rank, label)).unwrap();
        member.bytes(span).copy_from_slice(&bytes);
    }
    local_steps.into_iter().for_each(|step| member.step(step));
    (member.round, member.has_sent) = (member.round + 1, false);
    true
}

/// A byte that depends on the rank and the offset.
fn byte(rank: usize, offset: usize) -> u8 {
    (rank * 37 + offset * 11 + offset / 251 + 5) as u8
}

/// The result of rank `rank` according to the man page.
fn expected(shape: &Shape, rank: usize) -> Vec<u8> {
    let (ranks, len) = (shape.ranks, shape.count * shape.size);
    let sum = |offset| (0..ranks).fold(0_u8, |sum, rank| sum.wrapping_add(byte(rank, offset)));
    match shape.coll {
        Op::Barrier => Vec::new(),
        Op::Reduce | Op::Gather if rank != shape.root => Vec::new(),
        Op::Broadcast => (0..len).map(|offset| byte(shape.root, offset)).collect(),
        Op::Scatter => (0..len)
            .map(|offset| byte(shape.root, rank * len + offset))
            .collect(),
        Op::Alltoall => (0..ranks * len)
            .map(|offset| byte(offset / len, rank * len + offset % len))
            .collect(),
        Op::Allgather | Op::Gather => (0..ranks * len)
            .map(|offset| byte(offset / len, offset % len))
            .collect(),
        Op::Allreduce | Op::Reduce => (0..len).map(sum).collect(),
        Op::ReduceScatter => (0..len).map(|offset| sum(rank * len + offset)).collect(),
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
            let send = (0..shape.source_len())
                .map(|offset| byte(rank, offset))
                .collect();
            let mut member = Member::new(&shape, send);
            if coll == Op::Broadcast && rank == root {
                member.memory[1] = (0..shape.result_len())
                    .map(|offset| byte(rank, offset))
                    .collect();
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
fn plans_of_many_bytes_and_many_members_give_the_result_of_the_man_page() {
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
            let previous = dependencies.clone();
            for (rank, dependencies) in dependencies.iter_mut().enumerate() {
                let sender = (rank + ranks - steps % ranks) % ranks;
                dependencies.extend(&previous[sender]);
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
