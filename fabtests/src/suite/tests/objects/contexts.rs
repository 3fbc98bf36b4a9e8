//! Scalable endpoints, fi_endpoint(3).

use std::sync::Arc;

use selvedge::{Bindings, Caps, Errno, av, cq};

use crate::suite::context::check::{holds, same};
use crate::suite::context::contexts::{RX_CTX_BITS, with_contexts};
use crate::suite::context::group::{Group, Joiner, for_each};
use crate::suite::context::{CollectiveCase, RAW, Result, Rx, Test, TestContext, Tx};
use crate::suite::defect::Defect;

tests! {
    each_to_each(CONTEXTS) catches [WrongContext, WrongSource] .apis(RAW);
    limits(CONTEXTS) catches [OpensAnyContext] .apis(RAW).processes(1);
    collectives(Caps::MSG.union(Caps::COLLECTIVE).union(Caps::NAMED_RX_CTX)) catches [
        OtherCollectives, WrongRoot, CompletesCollectivesEarly, MixesGroups
    ] .apis(RAW).processes(3);
}

const CONTEXTS: Caps = Caps::MSG
    .union(Caps::NAMED_RX_CTX)
    .union(Caps::SOURCE)
    .union(Caps::DIRECTED_RECV);
const COUNT: usize = 3;

/// Every context sends to every context of the peer. The sending context is the source of the
/// message, and a directed receive matches it.
fn each_to_each(ctx: &mut TestContext) -> Result {
    let (endpoints, peers) = ctx.contexts(COUNT)?;
    let peer = peers[1 - ctx.me()];
    for from in 0..COUNT {
        for to in 0..COUNT {
            let number = from * COUNT + to;
            if ctx.me() == 0 {
                let dest = peer.rx_addr(to, RX_CTX_BITS);
                endpoints[from].run(Tx::msg(dest, ctx.payload(1, number, 64)))?;
            } else {
                let source = peer.rx_addr(from, RX_CTX_BITS);
                let post = match number % 2 {
                    0 => Rx::msg(64),
                    _ => Rx::msg(64).from(source),
                };
                let done = endpoints[to].post_and_wait(post)?.expect_success()?;
                same("the source of a context's message", done.src, source)?;
                ctx.verify(0, number, &done.bytes)?;
            }
            ctx.barrier()?;
        }
    }
    Ok(())
}

/// The number of contexts is limited, and each context can be opened once at a time.
fn limits(ctx: &mut TestContext) -> Result {
    let limit = ctx.info_for(&ctx.hints())?.domain_attr.max_ep_rx_ctx;
    holds("there may be several contexts", limit > 1)?;
    let result = ctx.registry().infos(&with_contexts(ctx.hints(), limit + 1));
    holds("more contexts than the limit are refused", result.is_err())?;
    let info = ctx.info_for(&with_contexts(ctx.hints(), 2))?;
    let domain = info.open()?;
    let sep = domain.scalable_endpoint(&info)?;
    let av = domain.av(&av::Attr::default())?;
    let cq = domain.cq(&cq::Attr::default())?;
    let bind = || Bindings::new(Arc::clone(&cq), Arc::clone(&av));
    let first = sep.context(0, &info, bind())?;
    same(
        "the first context's address",
        first.address(),
        sep.address(),
    )?;
    let errno = |index| sep.context(index, &info, bind()).map_err(|it| it.errno());
    same("a context that is open", errno(0).err(), Some(Errno::Busy))?;
    same(
        "a context that does not exist",
        errno(2).err(),
        Some(Errno::Inval),
    )?;
    drop(first);
    holds("a context that was closed", errno(0).is_ok())
}

/// Number of each process's contexts that are members of groups. Member `n` is context
/// `n % CONTEXTS_PER_PROCESS` of process `n / CONTEXTS_PER_PROCESS`.
const CONTEXTS_PER_PROCESS: usize = 2;
/// Groups that are used at the same time: every context is in one of them.
const GROUPS: [&[&[usize]]; 4] = [
    &[&[3, 0, 5, 2, 1, 4]],
    &[&[4, 0, 2], &[1, 3, 5]],
    &[&[2, 1], &[0, 3], &[5, 4]],
    &[&[1, 2, 5], &[4, 3, 0]],
];

/// A context of this process as a member of a group.
struct Membership<'a> {
    joiner: &'a Joiner,
    group: Group,
    /// The index of the context in the group.
    member: usize,
    cases: Vec<CollectiveCase>,
}

/// Runs each collective in groups of contexts: of all contexts, of one context of each process, and
/// of both contexts of a process.
fn collectives(ctx: &mut TestContext) -> Result {
    let joiners = ctx.joiners(CONTEXTS_PER_PROCESS)?;
    let counts = [1, ctx.scale(300, 20_000)];
    let all: Vec<_> = GROUPS
        .iter()
        .map(|groups| memberships(ctx.me(), &joiners, groups, &counts))
        .collect::<Result<_>>()?;
    for memberships in &all {
        for round in 0..memberships[0].cases.len() {
            run_collective(memberships, round)?;
        }
    }
    Ok(())
}

/// Joins each group with the contexts of this process that are its members.
fn memberships<'a>(
    me: usize,
    joiners: &'a [Joiner],
    groups: &[&[usize]],
    counts: &[usize],
) -> Result<Vec<Membership<'a>>> {
    let mut memberships = Vec::new();
    for (number, &members) in groups.iter().enumerate() {
        // Groups that are used at the same time have different words.
        let cases = CollectiveCase::all(members.len(), counts, 1000 * number);
        for (index, joiner) in joiners.iter().enumerate() {
            let is_own = |&member: &usize| member == CONTEXTS_PER_PROCESS * me + index;
            if let Some(member) = members.iter().position(is_own) {
                memberships.push(Membership {
                    joiner,
                    group: joiner.start_join(members)?,
                    member,
                    cases: cases.clone(),
                });
            }
        }
    }
    let joiners = memberships.iter().map(|membership| membership.joiner);
    for_each("the members of groups", joiners, |_, joiner| {
        joiner.poll_join()
    })?;
    Ok(memberships)
}

/// Runs one collective in each group.
fn run_collective(memberships: &[Membership<'_>], round: usize) -> Result {
    let post = |membership: &Membership<'_>| {
        membership.cases[round].post(membership.member, membership.joiner, &membership.group)
    };
    let posted: Vec<_> = memberships.iter().map(post).collect::<Result<_>>()?;
    let joiners = memberships.iter().map(|membership| membership.joiner);
    let found = for_each("the end of a collective", joiners, |index, joiner| {
        joiner.try_wait_for(&posted[index])
    })?;
    for (membership, found) in memberships.iter().zip(&found) {
        membership.cases[round].check(membership.member, found)?;
    }
    Ok(())
}
