//! Groups and collectives, fi_collective(3).

use selvedge::collective::Op;
use selvedge::{Caps, Errno, FiAddr, OpFlags};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::group::Work;
use crate::suite::cx::timeout::until;
use crate::suite::cx::{Case, Cx, RAW, Result, Test};
use crate::suite::flaw::Flaw;

tests! {
    every_collective(ALL) catches [
        OtherCollectives, WrongRoot, HurriesCollectives
    ] .faces(RAW).processes(4);
    nobody_leaves_a_barrier_early(ALL) catches [HurriesCollectives] .faces(RAW).processes(3);
    groups_do_not_mix(ALL) catches [MixesGroups] .faces(RAW).processes(4);
    a_lost_member_ends_them(ALL) catches [HidesErrors, NeverCloses] .faces(RAW).processes(3);
    refusals(ALL) catches [TakesAnyFlag] .faces(RAW);
}

const ALL: Caps = Caps::MSG.union(Caps::COLLECTIVE);

/// Each collective with each member as its root, in groups of all and of some.
fn every_collective(cx: &mut Cx) -> Result {
    let joiner = cx.joiner()?;
    let counts = [1, 7, cx.scale(1000, 20_000)];
    for processes in [&[0, 1, 2, 3][..], &[3, 1], &[2, 0, 1]] {
        let Some(own) = processes.iter().position(|&process| process == cx.me()) else {
            continue;
        };
        let group = joiner.join(processes)?;
        for case in Case::every(processes.len(), &counts, 0) {
            let posted = case.post(own, &joiner, &group)?;
            case.check(own, &joiner.done(&posted)?)?;
        }
    }
    Ok(())
}

/// Whoever is in a barrier stays there until the last one has come.
fn nobody_leaves_a_barrier_early(cx: &mut Cx) -> Result {
    let joiner = cx.joiner()?;
    let all: Vec<_> = (0..cx.count()).collect();
    let group = joiner.join(&all)?;
    for round in 0..cx.scale(9, 90) {
        let is_last = round % cx.count() == cx.me();
        let early = match is_last {
            true => None,
            false => Some(joiner.post(&group, &Work::barrier())?),
        };
        cx.barrier()?;
        joiner.port.settle()?;
        holds("nobody has left", joiner.outcome()?.is_none())?;
        cx.barrier()?;
        let posted = match early {
            Some(posted) => posted,
            None => joiner.post(&group, &Work::barrier())?,
        };
        joiner.done(&posted)?;
    }
    Ok(())
}

/// Groups that overlap, joined and used at the same time.
fn groups_do_not_mix(cx: &mut Cx) -> Result {
    let joiner = cx.joiner()?;
    let all = joiner.join(&[0, 1, 2, 3])?;
    let is_odd = cx.me() % 2 == 1;
    let odd = is_odd.then(|| joiner.join(&[3, 1])).transpose()?;
    let sum = |input: u64| Work {
        coll: Op::Allreduce,
        count: 1,
        input: vec![input],
        room: 1,
        ..Work::barrier()
    };
    for round in 0..cx.scale(20, 500) as u64 {
        let own = (round + 1) * 10_u64.pow(cx.me() as u32);
        // Three at once, of two groups.
        let first = joiner.post(&all, &sum(own))?;
        let apart = odd
            .as_ref()
            .map(|odd| joiner.post(odd, &sum(own)))
            .transpose()?;
        let last = joiner.post(&all, &sum(2 * own))?;
        let mut posted = vec![(first, 1111), (last, 2222)];
        posted.extend(apart.map(|apart| (apart, 1010)));
        // They may end in any order but that of their group.
        for _ in 0..posted.len() {
            let entry = until("the end of a collective", || joiner.outcome())?;
            holds("it has succeeded", entry.is_ok())?;
        }
        for (posted, expected) in &posted {
            same("a sum", posted.words()?, vec![expected * (round + 1)])?;
        }
    }
    // Keys tell joins apart that begin in another order.
    let keys = match cx.me() {
        0 | 1 => [b"a", b"b"],
        _ => [b"b", b"a"],
    };
    let joins = keys.map(|key| joiner.try_join(&[2, 1, 0, 3], key));
    let mut groups = Vec::new();
    for group in joins {
        groups.push(group?);
        joiner.joined()?;
    }
    if cx.me() > 1 {
        groups.reverse();
    }
    for (number, group) in (1..).zip(&groups) {
        let posted = joiner.post(group, &sum(number))?;
        same("a sum by key", joiner.done(&posted)?, vec![4 * number])?;
    }
    Ok(())
}

/// When a member closes its endpoint, what needs it ends with an error, and so does all that is
/// posted to the group afterwards.
fn a_lost_member_ends_them(cx: &mut Cx) -> Result {
    let joiner = cx.joiner()?;
    let group = joiner.join(&[0, 1, 2])?;
    let posted = joiner.post(&group, &Work::barrier())?;
    joiner.done(&posted)?;
    cx.barrier()?;
    if cx.me() == 2 {
        drop((group, joiner));
        cx.close_ports_at_once();
        holds("it is gone", true)?;
        return cx.barrier();
    }
    joiner.post(&group, &Work::barrier())?;
    let outcome = until("the end of a collective", || joiner.outcome())?;
    holds("a barrier without a member fails", outcome.is_err())?;
    match joiner.try_post(group.addr(), &Work::barrier()) {
        Err(errno) => holds("there is a reason", errno != Errno::Again)?,
        Ok(_) => {
            let outcome = until("the end of another", || joiner.outcome())?;
            holds("another one fails, too", outcome.is_err())?;
        }
    }
    cx.barrier()
}

/// What cannot be is refused before anything is sent.
fn refusals(cx: &mut Cx) -> Result {
    let joiner = cx.joiner()?;
    let alone = joiner.try_join(&[1 - cx.me()], &[]).map(drop);
    same("a group without oneself", alone, Err(Errno::Inval))?;
    let refused = |group: FiAddr, work: &Work| joiner.try_post(group, work).map(drop);
    if cx.me() == 1 {
        cx.barrier()?;
    }
    let group = joiner.try_join(&[0, 1], &[])?;
    if cx.me() == 0 {
        let early = refused(group.addr(), &Work::barrier());
        same(
            "a group with nobody in it yet",
            early,
            Err(Errno::OpBadState),
        )?;
        cx.barrier()?;
    }
    joiner.joined()?;
    let none = refused(FiAddr(0), &Work::barrier());
    same("a group that is none", none, Err(Errno::Inval))?;
    let fence = Work {
        flags: OpFlags::FENCE,
        ..Work::barrier()
    };
    let flags = refused(group.addr(), &fence);
    same("a fence", flags, Err(Errno::BadFlags))?;
    let posted = joiner.post(&group, &Work::barrier())?;
    joiner.done(&posted).map(drop)
}
