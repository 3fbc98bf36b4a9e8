//! What endpoints wait for, in sentences: those of a process, and those at the other ends.

use std::collections::BTreeSet;
use std::fmt::Write;

use selvedge_kit::telemetry::calls::CallLog;
use selvedge_kit::telemetry::groups::GroupStats;
use selvedge_kit::telemetry::layout::MAX_POSTED;
use selvedge_kit::telemetry::{
    self, Gauge, PeerState, PeerStats, PostedReceive, SourcePeer, Stats,
};

use crate::calls;
use crate::groups;
use crate::processes::{self, Wreck};
use crate::table;
use crate::times;
use crate::units::{age, bytes};

/// An endpoint that has not looked after itself for so long is not driven, in seconds.
const LONG: f64 = 1.0;

/// What can be looked at: all endpoints, and the groups of those that have some.
struct Scene<'a> {
    seen: &'a [Stats],
    groups: &'a [GroupStats],
}

/// Calls that are told of.
const LAST: usize = 8;

/// What the endpoints of a process wait for, and the endpoints that they talk to.
pub(crate) fn process(mut all: Vec<Stats>, pid: u32) -> String {
    let now = telemetry::now();
    let pids: BTreeSet<u32> = all.iter().map(|seen| seen.pid).collect();
    let groups: Vec<GroupStats> = pids.into_iter().flat_map(processes::groups).collect();
    groups::without_own_receives(&mut all, &groups);
    let all = Scene {
        seen: &all,
        groups: &groups,
    };
    let (own, others): (Vec<&Stats>, Vec<&Stats>) =
        all.seen.iter().partition(|seen| seen.pid == pid);
    let mut text = String::new();
    for seen in &own {
        endpoint(&mut text, &all, seen, now);
    }
    let is_peer = |other: &&&Stats| {
        own.iter()
            .any(|seen| knows(seen, other) || knows(other, seen))
    };
    for shared in without_page(&processes::calls(pid), all.seen) {
        let _ = writeln!(text, "process {pid}, {}", processes::title(&shared.header));
        for line in calls::last(shared, now, LAST) {
            let _ = writeln!(text, "  {line}");
        }
    }
    for other in others.iter().filter(is_peer) {
        endpoint(&mut text, &all, other, now);
    }
    deadlocks(&mut text, &own, &others);
    text
}

/// What a crash has left.
pub(crate) fn flight(wreck: &Wreck) -> String {
    let mut text = String::new();
    let mut endpoints = wreck.endpoints.clone();
    groups::without_own_receives(&mut endpoints, &wreck.groups);
    let scene = Scene {
        seen: &[],
        groups: &wreck.groups,
    };
    for seen in &endpoints {
        let own = wreck
            .calls
            .iter()
            .find(|it| processes::is_of(&it.header, seen));
        let last_call = own.and_then(|own| own.calls.last()).map_or(0, |it| it.at);
        // The last thing that is known is the end of its time.
        let last = seen.events.last().map_or(0, |event| event.at);
        let now = last.max(last_call).max(seen.snapshot_time).max(seen.opened);
        let _ = writeln!(text, "process {}, {}", seen.pid, title(seen));
        for line in table::details(seen) {
            let _ = writeln!(text, "  {line}");
        }
        waits(&mut text, &scene, seen, now);
        for event in &seen.events {
            let before = now.saturating_sub(event.at) as f64 / 1e9;
            let _ = writeln!(
                text,
                "  {:>9.3}s before its end: {}",
                before,
                event.sentence()
            );
        }
        for line in own.map_or_else(Vec::new, |own| calls::left(own, now)) {
            let _ = writeln!(text, "  {line}");
        }
    }
    for own in without_page(&wreck.calls, &wreck.endpoints) {
        let title = processes::title(&own.header);
        let _ = writeln!(text, "process {}, {title}", own.header.pid);
        let now = own.calls.last().map_or(0, |it| it.at);
        for line in calls::left(own, now) {
            let _ = writeln!(text, "  {line}");
        }
    }
    for latencies in &wreck.latencies {
        text += &times::of(latencies);
    }
    text
}

/// Calls of what has no page.
fn without_page<'a>(calls: &'a [CallLog], pages: &'a [Stats]) -> impl Iterator<Item = &'a CallLog> {
    let has_page = |calls: &CallLog| processes::has_page(&calls.header, pages);
    calls.iter().filter(move |calls| !has_page(calls))
}

fn endpoint(text: &mut String, all: &Scene<'_>, seen: &Stats, now: u64) {
    let command = processes::command(seen.pid).unwrap_or_else(|| "gone".to_owned());
    let _ = writeln!(text, "process {} ({command}), {}", seen.pid, title(seen));
    let idle = now.saturating_sub(seen.snapshot_time) as f64 / 1e9;
    let how = match processes::state(seen.pid) {
        Some('T' | 't') => "The process is stopped.".to_owned(),
        Some('Z') | None => "The process is dead.".to_owned(),
        Some(_) if seen.snapshot_time == 0 => "Nobody has read its queues yet.".to_owned(),
        Some(_) if idle < LONG => "Its queues are read.".to_owned(),
        Some('S' | 'D') => format!(
            "It has not looked after itself for {}: its process sleeps, here or somewhere else.",
            age(idle)
        ),
        Some(_) => format!(
            "Nobody has read its queues for {}: its process is busy with something else.",
            age(idle)
        ),
    };
    let _ = writeln!(text, "  {how}");
    if !seen.is_consistent {
        let _ = writeln!(
            text,
            "  It was being written down when it stopped; take it with care."
        );
    }
    waits(text, all, seen, now);
    for line in calls::lines(&processes::calls(seen.pid), seen, now, LAST) {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(event) = seen.events.last() {
        let ago = now.saturating_sub(event.at) as f64 / 1e9;
        let _ = writeln!(
            text,
            "  Last event, {} ago: {}.",
            age(ago),
            event.sentence()
        );
    }
}

fn title(seen: &Stats) -> String {
    format!("{} endpoint {}", seen.provider, seen.name)
}

/// What an endpoint waits for.
fn waits(text: &mut String, scene: &Scene<'_>, seen: &Stats, now: u64) {
    let all = scene.seen;
    let mut lines = groups::lines(scene.groups, seen, now);
    lines.extend(seen.posted.iter().map(|wait| receive(all, seen, wait)));
    let more = seen.gauge(Gauge::Posted).saturating_sub(MAX_POSTED as u64);
    if more > 0 {
        lines.push(format!("It waits for messages in {more} more receives."));
    }
    lines.extend(seen.unexpected.iter().map(|kept| {
        let tag = match kept.is_tagged {
            true => format!(" with tag {:#x}", kept.tag),
            false => String::new(),
        };
        let (from, len) = (whose(all, seen, kept.from), bytes(kept.len as f64));
        format!("A message of {len}{tag} from {from} is there, and no receive takes it.")
    }));
    let more = seen
        .gauge(Gauge::Unexpected)
        .saturating_sub(seen.unexpected.len() as u64);
    if more > 0 {
        lines.push(format!(
            "{more} more messages are there that no receive takes."
        ));
    }
    lines.extend(seen.peers.iter().flat_map(|it| peer(all, seen, it)));
    let unread = seen.gauge(Gauge::Unread);
    if unread > 0 {
        lines.push(format!(
            "{unread} completions wait for the program to read them."
        ));
    }
    if lines.is_empty() {
        lines.push("It waits for nothing.".to_owned());
    }
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn receive(all: &[Stats], seen: &Stats, wait: &PostedReceive) -> String {
    let tag = match wait {
        PostedReceive {
            is_tagged: false, ..
        } => String::new(),
        PostedReceive { ignore: 0, tag, .. } => format!(" with tag {tag:#x}"),
        PostedReceive {
            ignore: u64::MAX, ..
        } => " with any tag".to_owned(),
        PostedReceive { ignore, tag, .. } => {
            format!(" with tag {tag:#x} (but for the bits {ignore:#x})")
        }
    };
    let from = whose(all, seen, wait.from);
    let what = if wait.is_tagged {
        "tagged message"
    } else {
        "message"
    };
    format!(
        "It waits for a {what}{tag} from {from}, of up to {}.",
        bytes(wait.len as f64)
    )
}

fn peer(all: &[Stats], seen: &Stats, peer: &PeerStats) -> Vec<String> {
    let name = named(all, seen, peer);
    let mut lines = Vec::new();
    match peer.state {
        PeerState::Connecting => lines.push(format!(
            "It waits for {name} to be there, with {} operations; nobody has the name yet.",
            peer.queued + peer.outstanding
        )),
        PeerState::Handshaking => lines.push(format!("It waits for {name} to greet it.")),
        PeerState::Draining => lines.push(format!(
            "{name} is gone; what it had sent last waits for receives here."
        )),
        PeerState::Idle | PeerState::Connected | PeerState::Disconnected => {}
    }
    if peer.outstanding > 0 && peer.state != PeerState::Connecting {
        lines.push(format!(
            "It waits for {name} to answer {}.",
            operations(peer.outstanding)
        ));
    }
    if peer.queued > 0 && peer.state != PeerState::Connecting {
        lines.push(format!(
            "{} to {name} have not left.",
            operations(peer.queued)
        ));
    }
    if peer.is_full {
        lines.push(format!(
            "There is no room for another message to {name}: it takes none."
        ));
    }
    if peer.unmatched > 0 {
        lines.push(format!(
            "{name} waits for receives here for {} large messages.",
            peer.unmatched
        ));
    }
    if peer.transferring > 0 {
        lines.push(format!(
            "{} large messages of {name} are on their way.",
            peer.transferring
        ));
    }
    lines
}

fn operations(number: u64) -> String {
    match number {
        1 => "1 operation".to_owned(),
        number => format!("{number} operations"),
    }
}

/// Whose messages something is about.
fn whose(all: &[Stats], seen: &Stats, from: SourcePeer) -> String {
    match from {
        SourcePeer::Any => "anybody".to_owned(),
        SourcePeer::Index(index) => match seen.peers.iter().find(|peer| peer.index == index) {
            Some(peer) => named(all, seen, peer),
            None => format!("peer {index}"),
        },
    }
}

/// A peer's name, with its process if that can be looked into.
fn named(all: &[Stats], seen: &Stats, peer: &PeerStats) -> String {
    let is_it = |other: &&Stats| other.provider == seen.provider && other.name == peer.name;
    match all.iter().find(is_it) {
        Some(other) => format!("{} (process {})", peer.name, other.pid),
        None => peer.name.clone(),
    }
}

fn knows(seen: &Stats, other: &Stats) -> bool {
    seen.provider == other.provider && seen.peers.iter().any(|peer| peer.name == other.name)
}

/// Pairs in which each waits for a message of the other, and neither has anything on its way.
fn deadlocks(text: &mut String, own: &[&Stats], others: &[&Stats]) {
    for one in own {
        for other in own.iter().chain(others) {
            let is_second = own.iter().any(|it| std::ptr::eq(*it, *other));
            if is_second && (one.pid, one.opened) >= (other.pid, other.opened) {
                continue;
            }
            if waits_for(one, other) && waits_for(other, one) && is_calm(one) && is_calm(other) {
                let _ = writeln!(
                    text,
                    "{} and {} wait for messages of each other, and nothing is under way.",
                    one.name, other.name
                );
            }
        }
    }
}

fn waits_for(seen: &Stats, other: &Stats) -> bool {
    let peers = seen.peers.iter().filter(|peer| peer.name == other.name);
    let mut indices = peers.map(|peer| peer.index);
    knows(seen, other)
        && seen.posted.iter().any(|wait| match wait.from {
            SourcePeer::Any => true,
            SourcePeer::Index(index) => indices.any(|it| it == index),
        })
}

/// Whether nothing is under way here.
fn is_calm(seen: &Stats) -> bool {
    let gauges = [Gauge::Outstanding, Gauge::Unexpected, Gauge::Unread];
    gauges.iter().all(|gauge| seen.gauge(*gauge) == 0)
}
