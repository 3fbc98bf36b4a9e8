//! Descriptions of pending collectives.

use selvedge_kit::telemetry::Stats;
use selvedge_kit::telemetry::groups::{AwaitedMember, GroupStats, PendingCollective};

use crate::processes;
use crate::units::age;

/// The tag bit of collective messages, for endpoints with collectives.
const LAYER: u64 = 1 << 63;
/// Mask of the sequence numbers of collectives, which wrap.
const SEQUENCE_MASK: u32 = 0xff_ffff;

/// Removes the receives of collectives from the statistics of endpoints with collectives: the
/// groups describe them.
pub(crate) fn remove_collective_receives(endpoints: &mut [Stats], groups: &[GroupStats]) {
    let with_groups = endpoints
        .iter_mut()
        .filter(|stats| find_groups(groups, stats).is_some());
    for stats in with_groups {
        stats.posted.retain(|wait| wait.tag & LAYER == 0);
    }
}

/// Returns the statistics of an endpoint's groups.
fn find_groups<'a>(all: &'a [GroupStats], stats: &Stats) -> Option<&'a GroupStats> {
    all.iter()
        .find(|groups| processes::is_of(&groups.header, stats))
}

/// Describes the pending collectives of an endpoint, and the members for which they wait.
pub(crate) fn describe_collectives(all: &[GroupStats], stats: &Stats, now: u64) -> Vec<String> {
    let groups = find_groups(all, stats);
    let pending = groups.map_or(&[][..], |groups| &groups.pending);
    pending
        .iter()
        .map(|collective| describe_collective(all, &stats.provider, collective, now))
        .collect()
}

fn describe_collective(
    all: &[GroupStats],
    provider: &str,
    pending: &PendingCollective,
    now: u64,
) -> String {
    let since = age(now.saturating_sub(pending.since) as f64 / 1e9);
    let PendingCollective {
        rank,
        members,
        sequence,
        ..
    } = pending;
    let collective = match pending.coll {
        None => format!("It joins a group of {members}, as rank {rank}, since {since}"),
        Some(coll) => format!(
            "It is in {coll:?} of a group of {members}, the group's collective {sequence}, as rank \
             {rank}, since {since}"
        ),
    };
    let members_text: Vec<String> = pending
        .awaited
        .iter()
        .map(|member| describe_member(all, provider, pending, member))
        .collect();
    let more = (pending.count as usize).saturating_sub(members_text.len());
    let more = match more {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let members_text = members_text.join("; ");
    match pending {
        PendingCollective {
            awaits_room: true, ..
        } if members_text.is_empty() => format!("{collective}."),
        PendingCollective {
            awaits_room: true, ..
        } => {
            format!("{collective}, and waits for room for its messages to {members_text}{more}.")
        }
        PendingCollective {
            is_exact: false,
            count,
            ..
        } => {
            format!(
                "{collective}, and waits for {count} messages, which may be from: {members_text}{more}."
            )
        }
        _ => format!("{collective}, and waits for {members_text}{more}."),
    }
}

/// Describes an awaited member, and whether that member has entered the collective.
fn describe_member(
    all: &[GroupStats],
    provider: &str,
    pending: &PendingCollective,
    awaited: &AwaitedMember,
) -> String {
    let remote = all
        .iter()
        .find(|groups| groups.header.provider == provider && groups.header.name == awaited.name);
    let pid = remote.map_or_else(String::new, |remote| {
        format!(" (process {})", remote.header.pid)
    });
    let progress = match (pending.coll, remote) {
        (Some(_), Some(remote)) => describe_progress(remote, pending, awaited),
        _ => "",
    };
    format!("rank {}, {}{pid}{progress}", awaited.rank, awaited.name)
}

fn describe_progress(
    remote: &GroupStats,
    pending: &PendingCollective,
    awaited: &AwaitedMember,
) -> &'static str {
    let Some(number) = awaited.number else {
        return "";
    };
    let is_same =
        |other: &PendingCollective| other.group == number && other.sequence == pending.sequence;
    if remote.pending.iter().any(is_same) {
        return ", which has entered it and waits itself";
    }
    let Some(group) = remote.groups.iter().find(|group| group.number == number) else {
        return "";
    };
    // The member has not entered this collective if the sequence number of the member's next
    // collective is not higher.
    let distance = pending.sequence.wrapping_sub(group.next) & SEQUENCE_MASK;
    if distance <= SEQUENCE_MASK / 2 {
        ", which has not entered it"
    } else {
        ""
    }
}
