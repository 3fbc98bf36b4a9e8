//! Text that describes the events for which the endpoints of a process, and their peers, wait.

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
use crate::processes::{self, FlightRecord};
use crate::table;
use crate::times;
use crate::units::{age, bytes};

/// An endpoint without progress for this time, in seconds, is reported as idle.
const IDLE_LIMIT: f64 = 1.0;

/// The available statistics: all endpoints, and the groups of endpoints with collectives.
struct Statistics<'a> {
    endpoints: &'a [Stats],
    groups: &'a [GroupStats],
}

/// Number of calls that the dump shows for each endpoint.
const CALLS_SHOWN: usize = 8;

/// Describes the events for which the endpoints of a process, and their peers, wait.
pub(crate) fn describe_process(mut all: Vec<Stats>, pid: u32) -> String {
    let now = telemetry::now();
    let pids: BTreeSet<u32> = all.iter().map(|stats| stats.pid).collect();
    let groups: Vec<GroupStats> = pids.into_iter().flat_map(processes::groups).collect();
    groups::remove_collective_receives(&mut all, &groups);
    let all = Statistics {
        endpoints: &all,
        groups: &groups,
    };
    let (local, others): (Vec<&Stats>, Vec<&Stats>) =
        all.endpoints.iter().partition(|stats| stats.pid == pid);
    let mut text = String::new();
    for stats in &local {
        describe_endpoint(&mut text, &all, stats, now);
    }
    let is_peer = |other: &&&Stats| {
        local
            .iter()
            .any(|stats| has_peer(stats, other) || has_peer(other, stats))
    };
    for log in logs_without_page(&processes::calls(pid), all.endpoints) {
        let _ = writeln!(text, "process {pid}, {}", processes::title(&log.header));
        for line in calls::describe_recent(log, now, CALLS_SHOWN) {
            let _ = writeln!(text, "  {line}");
        }
    }
    for other in others.iter().filter(is_peer) {
        describe_endpoint(&mut text, &all, other, now);
    }
    report_deadlocks(&mut text, &local, &others);
    text
}

/// Describes the contents of a flight record.
pub(crate) fn describe_flight_record(record: &FlightRecord) -> String {
    let mut text = String::new();
    let mut endpoints = record.endpoints.clone();
    groups::remove_collective_receives(&mut endpoints, &record.groups);
    let statistics = Statistics {
        endpoints: &[],
        groups: &record.groups,
    };
    for stats in &endpoints {
        let log = record
            .calls
            .iter()
            .find(|log| processes::is_of(&log.header, stats));
        let last_call = log.and_then(|log| log.calls.last());
        // The time of the last record stands for the end of the process.
        let last_event = stats.events.last().map_or(0, |event| event.at);
        let end = last_event
            .max(last_call.map_or(0, |call| call.at))
            .max(stats.snapshot_time)
            .max(stats.opened);
        let _ = writeln!(text, "process {}, {}", stats.pid, title(stats));
        for line in table::details(stats) {
            let _ = writeln!(text, "  {line}");
        }
        describe_waits(&mut text, &statistics, stats, end);
        for event in &stats.events {
            let seconds = end.saturating_sub(event.at) as f64 / 1e9;
            let _ = writeln!(
                text,
                "  {seconds:>9.3}s before the end: {}",
                event.sentence()
            );
        }
        for line in log.map_or_else(Vec::new, |log| calls::describe_before_end(log, end)) {
            let _ = writeln!(text, "  {line}");
        }
    }
    for log in logs_without_page(&record.calls, &record.endpoints) {
        let title = processes::title(&log.header);
        let _ = writeln!(text, "process {}, {title}", log.header.pid);
        let end = log.calls.last().map_or(0, |call| call.at);
        for line in calls::describe_before_end(log, end) {
            let _ = writeln!(text, "  {line}");
        }
    }
    for latencies in &record.latencies {
        text += &times::format_endpoint(latencies);
    }
    text
}

/// Returns the call logs of objects without a statistics page.
fn logs_without_page<'a>(
    logs: &'a [CallLog],
    pages: &'a [Stats],
) -> impl Iterator<Item = &'a CallLog> {
    let has_page = |log: &CallLog| processes::has_page(&log.header, pages);
    logs.iter().filter(move |log| !has_page(log))
}

fn describe_endpoint(text: &mut String, all: &Statistics<'_>, stats: &Stats, now: u64) {
    let command = processes::command(stats.pid).unwrap_or_else(|| "ended".to_owned());
    let _ = writeln!(text, "process {} ({command}), {}", stats.pid, title(stats));
    let idle = now.saturating_sub(stats.snapshot_time) as f64 / 1e9;
    let state = match processes::state(stats.pid) {
        Some('T' | 't') => "The process is stopped.".to_owned(),
        Some('Z') | None => "The process has ended.".to_owned(),
        Some(_) if stats.snapshot_time == 0 => "Its queues have not been read yet.".to_owned(),
        Some(_) if idle < IDLE_LIMIT => "Its queues are read.".to_owned(),
        Some('S' | 'D') => format!(
            "Its queues have not been read for {}: the process is blocked.",
            age(idle)
        ),
        Some(_) => format!(
            "Its queues have not been read for {}: the process is running other code.",
            age(idle)
        ),
    };
    let _ = writeln!(text, "  {state}");
    if !stats.is_consistent {
        let _ = writeln!(
            text,
            "  These statistics were being updated when the process stopped; they may be inconsistent."
        );
    }
    describe_waits(text, all, stats, now);
    for line in calls::describe_endpoint(&processes::calls(stats.pid), stats, now, CALLS_SHOWN) {
        let _ = writeln!(text, "  {line}");
    }
    if let Some(event) = stats.events.last() {
        let seconds = now.saturating_sub(event.at) as f64 / 1e9;
        let _ = writeln!(
            text,
            "  Last event, {} ago: {}.",
            age(seconds),
            event.sentence()
        );
    }
}

fn title(stats: &Stats) -> String {
    format!("{} endpoint {}", stats.provider, stats.name)
}

/// Describes the events for which an endpoint waits.
fn describe_waits(text: &mut String, statistics: &Statistics<'_>, stats: &Stats, now: u64) {
    let all = statistics.endpoints;
    let mut lines = groups::describe_collectives(statistics.groups, stats, now);
    let receives = stats.posted.iter();
    lines.extend(receives.map(|receive| describe_receive(all, stats, receive)));
    let more = stats.gauge(Gauge::Posted).saturating_sub(MAX_POSTED as u64);
    if more > 0 {
        lines.push(format!("It waits for messages in {more} more receives."));
    }
    lines.extend(stats.unexpected.iter().map(|message| {
        let tag = if message.is_tagged {
            format!(" with tag {:#x}", message.tag)
        } else {
            String::new()
        };
        let (from, len) = (
            source_name(all, stats, message.from),
            bytes(message.len as f64),
        );
        format!("A message of {len}{tag} from {from} has arrived, and no receive matches it.")
    }));
    let more = stats
        .gauge(Gauge::Unexpected)
        .saturating_sub(stats.unexpected.len() as u64);
    if more > 0 {
        lines.push(format!(
            "{more} more messages have arrived that no receive matches."
        ));
    }
    let peers = stats.peers.iter();
    lines.extend(peers.flat_map(|peer| describe_peer(all, stats, peer)));
    let unread = stats.gauge(Gauge::Unread);
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

fn describe_receive(all: &[Stats], stats: &Stats, receive: &PostedReceive) -> String {
    let tag = match receive {
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
    let from = source_name(all, stats, receive.from);
    let kind = if receive.is_tagged {
        "tagged message"
    } else {
        "message"
    };
    format!(
        "It waits for a {kind}{tag} from {from}, of up to {}.",
        bytes(receive.len as f64)
    )
}

fn describe_peer(all: &[Stats], stats: &Stats, peer: &PeerStats) -> Vec<String> {
    let name = peer_name(all, stats, peer);
    let mut lines = Vec::new();
    match peer.state {
        PeerState::Connecting => lines.push(format!(
            "It waits for {name} to start, with {} operations; no endpoint has the name yet.",
            peer.queued + peer.outstanding
        )),
        PeerState::Handshaking => lines.push(format!("It waits for the handshake with {name}.")),
        PeerState::Draining => lines.push(format!(
            "{name} has disconnected; its last messages wait for receives."
        )),
        PeerState::Idle | PeerState::Connected | PeerState::Disconnected => {}
    }
    if peer.outstanding > 0 && peer.state != PeerState::Connecting {
        lines.push(format!(
            "It waits for {name} to respond to {}.",
            count_operations(peer.outstanding)
        ));
    }
    if peer.queued > 0 && peer.state != PeerState::Connecting {
        lines.push(format!(
            "{} to {name} are not sent yet.",
            count_operations(peer.queued)
        ));
    }
    if peer.is_full {
        lines.push(format!(
            "The queue to {name} is full: it takes no messages."
        ));
    }
    if peer.unmatched > 0 {
        lines.push(format!(
            "{name} waits for receives for {} large messages.",
            peer.unmatched
        ));
    }
    if peer.transferring > 0 {
        lines.push(format!(
            "{} large messages of {name} are being transferred.",
            peer.transferring
        ));
    }
    lines
}

fn count_operations(number: u64) -> String {
    match number {
        1 => "1 operation".to_owned(),
        number => format!("{number} operations"),
    }
}

/// Returns the name of the source of a message.
fn source_name(all: &[Stats], stats: &Stats, from: SourcePeer) -> String {
    match from {
        SourcePeer::Any => "any peer".to_owned(),
        SourcePeer::Index(index) => match stats.peers.iter().find(|peer| peer.index == index) {
            Some(peer) => peer_name(all, stats, peer),
            None => format!("peer {index}"),
        },
    }
}

/// Returns a peer's name, with its process id if that is known.
fn peer_name(all: &[Stats], stats: &Stats, peer: &PeerStats) -> String {
    let is_peer = |other: &&Stats| other.provider == stats.provider && other.name == peer.name;
    match all.iter().find(is_peer) {
        Some(other) => format!("{} (process {})", peer.name, other.pid),
        None => peer.name.clone(),
    }
}

fn has_peer(stats: &Stats, other: &Stats) -> bool {
    stats.provider == other.provider && stats.peers.iter().any(|peer| peer.name == other.name)
}

/// Reports pairs of endpoints that wait for messages of each other, with no operation in progress.
fn report_deadlocks(text: &mut String, local: &[&Stats], others: &[&Stats]) {
    for one in local {
        for other in local.iter().chain(others) {
            // A pair of local endpoints is reported once.
            let is_local = local.iter().any(|stats| std::ptr::eq(*stats, *other));
            if is_local && (one.pid, one.opened) >= (other.pid, other.opened) {
                continue;
            }
            if waits_for(one, other) && waits_for(other, one) && is_idle(one) && is_idle(other) {
                let _ = writeln!(
                    text,
                    "{} and {} wait for messages of each other, and no operation is in progress.",
                    one.name, other.name
                );
            }
        }
    }
}

fn waits_for(stats: &Stats, other: &Stats) -> bool {
    let peers = stats.peers.iter().filter(|peer| peer.name == other.name);
    let mut indices = peers.map(|peer| peer.index);
    has_peer(stats, other)
        && stats.posted.iter().any(|receive| match receive.from {
            SourcePeer::Any => true,
            SourcePeer::Index(index) => indices.any(|peer| peer == index),
        })
}

/// Returns whether no operation of an endpoint is in progress.
fn is_idle(stats: &Stats) -> bool {
    let gauges = [Gauge::Outstanding, Gauge::Unexpected, Gauge::Unread];
    gauges.iter().all(|gauge| stats.gauge(*gauge) == 0)
}
