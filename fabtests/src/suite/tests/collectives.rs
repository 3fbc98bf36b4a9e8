//! Groups and collectives, fi_collective(3).

use selvedge::collective::Op;
use selvedge::{Caps, Errno, FiAddr, OpFlags};

use crate::suite::context::check::{holds, same};
use crate::suite::context::group::CollectiveCall;
use crate::suite::context::timeout::until;
use crate::suite::context::{CollectiveCase, RAW, Result, Test, TestContext};
use crate::suite::defect::Defect;

tests! {
    every_collective(ALL) catches [
        OtherCollectives, WrongRoot, CompletesCollectivesEarly
    ] .apis(RAW).processes(4);
    no_member_leaves_a_barrier_early(ALL) catches [CompletesCollectivesEarly] .apis(RAW).processes(3);
    groups_do_not_mix(ALL) catches [MixesGroups] .apis(RAW).processes(4);
    a_closed_member_ends_collectives(ALL) catches [HidesErrors, NeverCloses] .apis(RAW).processes(3);
    refusals(ALL) catches [AcceptsAnyFlag] .apis(RAW);
}

const ALL: Caps = Caps::MSG.union(Caps::COLLECTIVE);

/// Each collective completes with the right result, with each member as its root, in a group of all
/// processes and in groups of some.
fn every_collective(ctx: &mut TestContext) -> Result {
    let joiner = ctx.joiner()?;
    let counts = [1, 7, ctx.scale(1000, 20_000)];
    for processes in [&[0, 1, 2, 3][..], &[3, 1], &[2, 0, 1]] {
        let Some(own) = processes.iter().position(|&process| process == ctx.me()) else {
            continue;
        };
        let group = joiner.join(processes)?;
        for case in CollectiveCase::all(processes.len(), &counts, 0) {
            let posted = case.post(own, &joiner, &group)?;
            case.check(own, &joiner.wait_for(&posted)?)?;
        }
    }
    Ok(())
}

/// A member leaves a barrier only after the last member has entered it.
fn no_member_leaves_a_barrier_early(ctx: &mut TestContext) -> Result {
    let joiner = ctx.joiner()?;
    let all: Vec<_> = (0..ctx.count()).collect();
    let group = joiner.join(&all)?;
    for round in 0..ctx.scale(9, 90) {
        let is_last = round % ctx.count() == ctx.me();
        let posted_early = if is_last {
            None
        } else {
            Some(joiner.post(&group, &CollectiveCall::barrier())?)
        };
        ctx.barrier()?;
        joiner.endpoint.settle()?;
        holds(
            "no member has left the barrier",
            joiner.next_completion()?.is_none(),
        )?;
        ctx.barrier()?;
        let posted = match posted_early {
            Some(posted) => posted,
            None => joiner.post(&group, &CollectiveCall::barrier())?,
        };
        joiner.wait_for(&posted)?;
    }
    Ok(())
}

/// Groups that overlap may be joined and used at the same time: each collective has the result of
/// its own group.
fn groups_do_not_mix(ctx: &mut TestContext) -> Result {
    let joiner = ctx.joiner()?;
    let all = joiner.join(&[0, 1, 2, 3])?;
    let is_odd = ctx.me() % 2 == 1;
    let odd = is_odd.then(|| joiner.join(&[3, 1])).transpose()?;
    let sum = |input: u64| CollectiveCall {
        coll: Op::Allreduce,
        count: 1,
        input: vec![input],
        result_len: 1,
        ..CollectiveCall::barrier()
    };
    for round in 0..ctx.scale(20, 500) as u64 {
        let own = (round + 1) * 10_u64.pow(ctx.me() as u32);
        // A member of both groups has three collectives outstanding.
        let first = joiner.post(&all, &sum(own))?;
        let odd_sum = odd
            .as_ref()
            .map(|odd| joiner.post(odd, &sum(own)))
            .transpose()?;
        let last = joiner.post(&all, &sum(2 * own))?;
        let mut posted = vec![(first, 1111), (last, 2222)];
        posted.extend(odd_sum.map(|odd_sum| (odd_sum, 1010)));
        // Collectives of different groups may end in any order.
        for _ in 0..posted.len() {
            let entry = until("the end of a collective", || joiner.next_completion())?;
            holds("it has succeeded", entry.is_ok())?;
        }
        for (posted, expected) in &posted {
            same("a sum", posted.words()?, vec![expected * (round + 1)])?;
        }
    }
    // Keys identify joins that the members begin in different orders.
    let keys = match ctx.me() {
        0 | 1 => [b"a", b"b"],
        _ => [b"b", b"a"],
    };
    let joins = keys.map(|key| joiner.try_join(&[2, 1, 0, 3], key));
    let mut groups = Vec::new();
    for group in joins {
        groups.push(group?);
        joiner.wait_for_join()?;
    }
    if ctx.me() > 1 {
        groups.reverse();
    }
    for (number, group) in (1..).zip(&groups) {
        let posted = joiner.post(group, &sum(number))?;
        same("a sum by key", joiner.wait_for(&posted)?, vec![4 * number])?;
    }
    Ok(())
}

/// When a member closes its endpoint, collectives that need it end with an error, and so do all
/// later collectives of the group.
fn a_closed_member_ends_collectives(ctx: &mut TestContext) -> Result {
    let joiner = ctx.joiner()?;
    let group = joiner.join(&[0, 1, 2])?;
    let posted = joiner.post(&group, &CollectiveCall::barrier())?;
    joiner.wait_for(&posted)?;
    ctx.barrier()?;
    if ctx.me() == 2 {
        drop((group, joiner));
        ctx.close_ports_at_once();
        holds("the member has closed its endpoint", true)?;
        return ctx.barrier();
    }
    joiner.post(&group, &CollectiveCall::barrier())?;
    let outcome = until("the end of a collective", || joiner.next_completion())?;
    holds("a barrier without a member fails", outcome.is_err())?;
    match joiner.try_post(group.addr(), &CollectiveCall::barrier()) {
        Err(errno) => holds("the refusal has a reason", errno != Errno::Again)?,
        Ok(_) => {
            let outcome = until("the end of another", || joiner.next_completion())?;
            holds("another barrier fails as well", outcome.is_err())?;
        }
    }
    ctx.barrier()
}

/// Invalid calls are refused before anything is sent.
fn refusals(ctx: &mut TestContext) -> Result {
    let joiner = ctx.joiner()?;
    let alone = joiner.try_join(&[1 - ctx.me()], &[]).map(drop);
    same("a group without oneself", alone, Err(Errno::Inval))?;
    let refused = |group: FiAddr, work: &CollectiveCall| joiner.try_post(group, work).map(drop);
    if ctx.me() == 1 {
        ctx.barrier()?;
    }
    let group = joiner.try_join(&[0, 1], &[])?;
    if ctx.me() == 0 {
        let posted_early = refused(group.addr(), &CollectiveCall::barrier());
        same(
            "a group whose join is not complete",
            posted_early,
            Err(Errno::OpBadState),
        )?;
        ctx.barrier()?;
    }
    joiner.wait_for_join()?;
    let none = refused(FiAddr(0), &CollectiveCall::barrier());
    same("an address that is no group", none, Err(Errno::Inval))?;
    let fence = CollectiveCall {
        flags: OpFlags::FENCE,
        ..CollectiveCall::barrier()
    };
    let flags = refused(group.addr(), &fence);
    same("a fence", flags, Err(Errno::BadFlags))?;
    let posted = joiner.post(&group, &CollectiveCall::barrier())?;
    joiner.wait_for(&posted).map(drop)
}
