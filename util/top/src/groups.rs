//! Descriptions of pending collectives.

use selvedge_kit::telemetry::Stats;
use selvedge_kit::telemetry::groups::{AwaitedMember, GroupStats, PendingCollective};

use crate::processes;
use crate::units::age;

/// The tag bit of collective messages, for endpoints with collectives.
const LAYER: u64 = 1 << 63;
/// Sequence numbers of collectives wrap at this mask.
const SEQUENCE: u32 = 0xff_ffff;

/// Removes the receives of collectives from the statistics of endpoints with collectives: the
/// groups describe them.
pub(crate) fn without_own_receives(all: &mut [Stats], groups: &[GroupStats]) {
    for stats in all.iter_mut().filter(|stats| of(groups, stats).is_some()) {
        stats.posted.retain(|wait| wait.tag & LAYER == 0);
    }
}

fn of<'a>(groups: &'a [GroupStats], stats: &Stats) -> Option<&'a GroupStats> {
    groups.iter().find(|it| processes::is_of(&it.header, stats))
}

/// Describes what the collectives of an endpoint wait for.
pub(crate) fn lines(groups: &[GroupStats], stats: &Stats, now: u64) -> Vec<String> {
    let own = of(groups, stats);
    let waiting = own.map_or(&[][..], |own| &own.pending);
    waiting
        .iter()
        .map(|it| sentence(groups, &stats.provider, it, now))
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
    let collective = match waiting.coll {
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
        } if named.is_empty() => format!("{collective}."),
        PendingCollective {
            awaits_room: true, ..
        } => {
            format!("{collective}, and waits for room for its messages to {named}{more}.")
        }
        PendingCollective {
            is_exact: false,
            count,
            ..
        } => {
            format!(
                "{collective}, and waits for {count} messages, which may be from: {named}{more}."
            )
        }
        _ => format!("{collective}, and waits for {named}{more}."),
    }
}

/// Describes an awaited member, and whether it has entered the collective.
fn member(
    groups: &[GroupStats],
    provider: &str,
    waiting: &PendingCollective,
    awaited: &AwaitedMember,
) -> String {
    let mut all = groups.iter();
    let remote = all.find(|it| it.header.provider == provider && it.header.name == awaited.name);
    let pid = remote.map_or_else(String::new, |remote| {
        format!(" (process {})", remote.header.pid)
    });
    let how = match (waiting.coll, remote) {
        (Some(_), Some(remote)) => progress(remote, waiting, awaited),
        _ => "",
    };
    format!("rank {}, {}{pid}{how}", awaited.rank, awaited.name)
}

fn progress(
    remote: &GroupStats,
    waiting: &PendingCollective,
    awaited: &AwaitedMember,
) -> &'static str {
    let Some(number) = awaited.number else {
        return "";
    };
    let is_in = |it: &&PendingCollective| it.group == number && it.sequence == waiting.sequence;
    if remote.pending.iter().any(|it| is_in(&it)) {
        return ", which has entered it and waits itself";
    }
    match remote.groups.iter().find(|it| it.number == number) {
        // The sequence number of its next collective is not higher: it has not entered this one.
        Some(it) if waiting.sequence.wrapping_sub(it.next) & SEQUENCE <= SEQUENCE / 2 => {
            ", which has not entered it"
        }
        _ => "",
    }
}
