//! What endpoints wait for in their collectives, in sentences.

use selvedge_kit::telemetry::Stats;
use selvedge_kit::telemetry::groups::{AwaitedMember, GroupStats, PendingCollective};

use crate::processes;
use crate::units::age;

/// The bit of tags that is the layer's where an endpoint has collectives.
const LAYER: u64 = 1 << 63;
/// Numbers of collectives come again.
const SEQUENCE: u32 = 0xff_ffff;

/// Takes what belongs to collectives out of the receives of endpoints that have some: it is told of in
/// other words.
pub(crate) fn without_own_receives(all: &mut [Stats], groups: &[GroupStats]) {
    for seen in all.iter_mut().filter(|seen| of(groups, seen).is_some()) {
        seen.posted.retain(|wait| wait.tag & LAYER == 0);
    }
}

fn of<'a>(groups: &'a [GroupStats], seen: &Stats) -> Option<&'a GroupStats> {
    groups.iter().find(|it| processes::is_of(&it.header, seen))
}

/// What the collectives of an endpoint wait for.
pub(crate) fn lines(groups: &[GroupStats], seen: &Stats, now: u64) -> Vec<String> {
    let own = of(groups, seen);
    let waiting = own.map_or(&[][..], |own| &own.pending);
    waiting
        .iter()
        .map(|it| sentence(groups, &seen.provider, it, now))
        .collect()
}

fn sentence(
    groups: &[GroupStats],
    provider: &str,
    waiting: &PendingCollective,
    now: u64,
) -> String {
    let since = age(now.saturating_sub(waiting.since) as f64 / 1e9);
    let PendingCollective {
        rank,
        members,
        sequence,
        ..
    } = waiting;
    let what = match waiting.coll {
        None => format!("It joins a group of {members}, as rank {rank}, since {since}"),
        Some(coll) => format!(
            "It is in {coll:?} of a group of {members}, the group's collective {sequence}, as rank \
             {rank}, since {since}"
        ),
    };
    let named: Vec<String> = waiting
        .awaited
        .iter()
        .map(|it| member(groups, provider, waiting, it))
        .collect();
    let more = (waiting.count as usize).saturating_sub(named.len());
    let more = match more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let named = named.join("; ");
    match waiting {
        PendingCollective {
            awaits_room: true, ..
        } if named.is_empty() => format!("{what}."),
        PendingCollective {
            awaits_room: true, ..
        } => {
            format!("{what}, and waits for room for its messages to {named}{more}.")
        }
        PendingCollective {
            is_exact: false,
            count,
            ..
        } => {
            format!("{what}, and waits for {count} messages, which may be of: {named}{more}.")
        }
        _ => format!("{what}, and waits for {named}{more}."),
    }
}

/// A member, and whether it has come.
fn member(
    groups: &[GroupStats],
    provider: &str,
    waiting: &PendingCollective,
    awaited: &AwaitedMember,
) -> String {
    let mut all = groups.iter();
    let its = all.find(|it| it.header.provider == provider && it.header.name == awaited.name);
    let pid = its.map_or_else(String::new, |its| format!(" (process {})", its.header.pid));
    let how = match (waiting.coll, its) {
        (Some(_), Some(its)) => progress(its, waiting, awaited),
        _ => "",
    };
    format!("rank {}, {}{pid}{how}", awaited.rank, awaited.name)
}

fn progress(
    its: &GroupStats,
    waiting: &PendingCollective,
    awaited: &AwaitedMember,
) -> &'static str {
    let Some(number) = awaited.number else {
        return "";
    };
    let is_in = |it: &&PendingCollective| it.group == number && it.sequence == waiting.sequence;
    if its.pending.iter().any(|it| is_in(&it)) {
        return ", which is in it and waits itself";
    }
    match its.groups.iter().find(|it| it.number == number) {
        // The number of the next one is at most as high: it has not begun this one.
        Some(it) if waiting.sequence.wrapping_sub(it.next) & SEQUENCE <= SEQUENCE / 2 => {
            ", which has not come to it"
        }
        _ => "",
    }
}
