//! Scalable endpoints, fi_endpoint(3).

use std::sync::Arc;

use selvedge::{Bindings, Caps, Errno, av, cq};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::contexts::{BITS, with_contexts};
use crate::suite::cx::group::{Group, Joiner, for_each};
use crate::suite::cx::{Case, Cx, RAW, Result, Rx, Test, Tx};
use crate::suite::flaw::Flaw;

tests! {
    each_to_each(CONTEXTS) catches [WrongContext, WrongSource] .faces(RAW);
    limits(CONTEXTS) catches [OpensAnyContext] .faces(RAW).processes(1);
    collectives(Caps::MSG.union(Caps::COLLECTIVE).union(Caps::NAMED_RX_CTX)) catches [
        OtherCollectives, WrongRoot, HurriesCollectives, MixesGroups
    ] .faces(RAW).processes(3);
}

const CONTEXTS: Caps = Caps::MSG
    .union(Caps::NAMED_RX_CTX)
    .union(Caps::SOURCE)
    .union(Caps::DIRECTED_RECV);
const COUNT: usize = 3;

/// Every context reaches every one of the peer, and is its source there; a directed receive takes
/// what comes from it.
fn each_to_each(cx: &mut Cx) -> Result {
    let (ports, peers) = cx.contexts(COUNT)?;
    let peer = peers[1 - cx.me()];
    for from in 0..COUNT {
        for to in 0..COUNT {
            let number = from * COUNT + to;
            if cx.me() == 0 {
                let dest = peer.rx_addr(to, BITS);
                ports[from].run(Tx::msg(dest, cx.payload(1, number, 64)))?;
            } else {
                let source = peer.rx_addr(from, BITS);
                let post = match number % 2 {
                    0 => Rx::msg(64),
                    _ => Rx::msg(64).from(source),
                };
                let done = ports[to].post_and_wait(post)?.expect_success()?;
                same("the source of a context's message", done.src, source)?;
                cx.verify(0, number, &done.bytes)?;
            }
            cx.barrier()?;
        }
    }
    Ok(())
}

/// As many contexts as there are, each once at a time.
fn limits(cx: &mut Cx) -> Result {
    let most = cx.info_for(&cx.hints())?.domain_attr.max_ep_rx_ctx;
    holds("there may be several contexts", most > 1)?;
    let more = cx.registry().infos(&with_contexts(cx.hints(), most + 1));
    holds("more than there may be are refused", more.is_err())?;
    let info = cx.info_for(&with_contexts(cx.hints(), 2))?;
    let domain = info.open()?;
    let sep = domain.scalable_endpoint(&info)?;
    let av = domain.av(&av::Attr::default())?;
    let cq = domain.cq(&cq::Attr::default())?;
    let bind = || Bindings::new(Arc::clone(&cq), Arc::clone(&av));
    let first = sep.context(0, &info, bind())?;
    same("the first one's address", first.address(), sep.address())?;
    let errno = |index| sep.context(index, &info, bind()).map_err(|it| it.errno());
    same("one that is open", errno(0).err(), Some(Errno::Busy))?;
    same("one that is not there", errno(2).err(), Some(Errno::Inval))?;
    drop(first);
    holds("one that was closed", errno(0).is_ok())
}

/// Contexts of each process in groups: number `n` is context `n % PARTS` of process `n / PARTS`.
const PARTS: usize = 2;
/// Groups that are used at the same time: every context is in one of them.
const AT_ONCE: [&[&[usize]]; 4] = [
    &[&[3, 0, 5, 2, 1, 4]],
    &[&[4, 0, 2], &[1, 3, 5]],
    &[&[2, 1], &[0, 3], &[5, 4]],
    &[&[1, 2, 5], &[4, 3, 0]],
];

/// A context of this process in a group, as its member of this number.
struct Seat<'a> {
    joiner: &'a Joiner,
    group: Group,
    own: usize,
    cases: Vec<Case>,
}

/// Each collective in groups of contexts: of all, of one of each process, of both of a process.
fn collectives(cx: &mut Cx) -> Result {
    let joiners = cx.joiners(PARTS)?;
    let counts = [1, cx.scale(300, 20_000)];
    let all: Vec<_> = AT_ONCE
        .iter()
        .map(|groups| seats(cx.me(), &joiners, groups, &counts))
        .collect::<Result<_>>()?;
    for seats in &all {
        for round in 0..seats[0].cases.len() {
            together(seats, round)?;
        }
    }
    Ok(())
}

/// Joins these groups with those contexts of this process that are in them.
fn seats<'a>(
    me: usize,
    joiners: &'a [Joiner],
    groups: &[&[usize]],
    counts: &[usize],
) -> Result<Vec<Seat<'a>>> {
    let mut seats = Vec::new();
    for (number, &members) in groups.iter().enumerate() {
        // Groups that are used at the same time have other words.
        let cases = Case::every(members.len(), counts, 1000 * number);
        for (index, joiner) in joiners.iter().enumerate() {
            let is_own = |&member: &usize| member == PARTS * me + index;
            if let Some(own) = members.iter().position(is_own) {
                seats.push(Seat {
                    joiner,
                    group: joiner.begin(members)?,
                    own,
                    cases: cases.clone(),
                });
            }
        }
    }
    let own = seats.iter().map(|seat| seat.joiner);
    for_each("the members of groups", own, |_, joiner| {
        joiner.has_joined()
    })?;
    Ok(seats)
}

/// One collective of each of the groups.
fn together(seats: &[Seat<'_>], round: usize) -> Result {
    let post = |seat: &Seat<'_>| seat.cases[round].post(seat.own, seat.joiner, &seat.group);
    let posted: Vec<_> = seats.iter().map(post).collect::<Result<_>>()?;
    let own = seats.iter().map(|seat| seat.joiner);
    let found = for_each("the end of a collective", own, |at, joiner| {
        joiner.try_done(&posted[at])
    })?;
    for (seat, found) in seats.iter().zip(&found) {
        seat.cases[round].check(seat.own, found)?;
    }
    Ok(())
}
