//! The endpoints, and what else hooks know of, as JSON. Fields are only ever added.

use selvedge_kit::telemetry::calls::{CallLog, CallRecord, Outcome, RecordKind};
use selvedge_kit::telemetry::latency::LatencyStats;
use selvedge_kit::telemetry::{
    Event, Gauge, OpCounter, PageHeader, PeerStats, ProtocolCounter, SourcePeer, Stats,
};
use serde_json::{Map, Value, json};

use crate::options::Options;
use crate::processes;
use crate::rates::{self, Measured, Rate};
use crate::times;

/// All that is asked for.
pub(crate) fn all(options: &Options) -> anyhow::Result<Value> {
    let endpoints = rates::measured(options)?;
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    let pids = processes::pids()?
        .into_iter()
        .filter(|pid| options.shows(*pid));
    let without_page: Vec<Value> = pids.flat_map(without_page).collect();
    Ok(json!({ "endpoints": endpoints, "without_page": without_page }))
}

/// What hooks know of a process beside endpoints with a page.
fn without_page(pid: u32) -> Vec<Value> {
    let (latencies, calls) = (processes::latencies(pid), processes::calls(pid));
    let pages = processes::of(pid);
    let heads = latencies.iter().map(|it| &it.header);
    let heads = heads.chain(calls.iter().map(|it| &it.header));
    let mut heads: Vec<&PageHeader> = heads
        .filter(|head| !processes::has_page(head, &pages))
        .collect();
    let name = |head: &PageHeader| (head.provider.clone(), head.name.clone());
    heads.sort_by_key(|head| name(head));
    heads.dedup_by_key(|head| name(head));
    let of = |head: &PageHeader| {
        let is_own = |other: &PageHeader| name(other) == name(head);
        json!({
            "pid": pid,
            "command": processes::command(pid),
            "provider": head.provider,
            "name": head.name,
            "opened_ns": head.opened,
            "latency": latency(&latencies, is_own),
            "calls": last_calls(&calls, is_own),
        })
    };
    heads.into_iter().map(of).collect()
}

fn endpoint(measured: &Measured) -> Value {
    let seen = &measured.seen;
    let is_own = |head: &PageHeader| processes::is_of(head, seen);
    let tallies: Map<String, Value> = OpCounter::ALL
        .into_iter()
        .map(|what| (what.name().to_owned(), pair(seen.op_counter(what))))
        .collect();
    json!({
        "pid": seen.pid,
        "command": processes::command(seen.pid),
        "provider": seen.provider,
        "name": seen.name,
        "opened_ns": seen.opened,
        "looked_ns": seen.snapshot_time,
        "is_whole": seen.is_consistent,
        "counts": tallies,
        "sent_by_way": ways(seen, true),
        "received_by_way": ways(seen, false),
        "rates": {
            "sent": rate(measured.sent),
            "received": rate(measured.received),
            "one_sided": rate(measured.one_sided),
        },
        "queues": {
            "posted": seen.gauge(Gauge::Posted),
            "unexpected": seen.gauge(Gauge::Unexpected),
            "unexpected_bytes": seen.gauge(Gauge::UnexpectedBytes),
            "unexpected_limit": seen.gauge(Gauge::UnexpectedLimit),
            "outstanding": seen.gauge(Gauge::Outstanding),
            "unread": seen.gauge(Gauge::Unread),
            "peers": seen.gauge(Gauge::Peers),
        },
        "waits": seen.posted.iter().map(|wait| json!({
            "tagged": wait.is_tagged,
            "from": source(seen, wait.from),
            "tag": wait.tag,
            "ignore": wait.ignore,
            "len": wait.len,
        })).collect::<Vec<_>>(),
        "unexpected": seen.unexpected.iter().map(|kept| json!({
            "tagged": kept.is_tagged,
            "from": source(seen, kept.from),
            "tag": kept.tag,
            "len": kept.len,
        })).collect::<Vec<_>>(),
        "peers": seen.peers.iter().map(peer).collect::<Vec<_>>(),
        "events": seen.events.iter().map(event).collect::<Vec<_>>(),
        "latency": latency(&processes::latencies(seen.pid), is_own),
        "calls": last_calls(&processes::calls(seen.pid), is_own),
    })
}

/// How long operations took; null where that is not known.
fn latency(all: &[LatencyStats], is_own: impl Fn(&PageHeader) -> bool) -> Value {
    let own = all.iter().find(|it| is_own(&it.header));
    own.map_or(Value::Null, |own| json!(times::json(&own.histograms)))
}

/// The last calls, likewise.
fn last_calls(all: &[CallLog], is_own: impl Fn(&PageHeader) -> bool) -> Value {
    let own = all.iter().find(|it| is_own(&it.header));
    own.map_or(Value::Null, |own| {
        json!(own.calls.iter().map(call).collect::<Vec<_>>())
    })
}

fn call(call: &CallRecord) -> Value {
    let (tries, took) = match call.kind {
        RecordKind::Post(tries) => (json!(tries), Value::Null),
        RecordKind::Completion(took) => (Value::Null, json!(took)),
    };
    json!({
        "at_ns": call.at,
        "what": if took.is_null() { "post" } else { "completion" },
        "name": call.name,
        "peer": call.peer,
        "len": call.len,
        "tag": call.tag,
        "key": call.key,
        "context": call.context,
        "tries": tries,
        "took_ns": took,
        "result": match call.outcome {
            Outcome::InProgress => Value::Null,
            Outcome::Done => json!(0),
            Outcome::Failed(errno) => json!(-errno.as_raw()),
        },
    })
}

fn ways(seen: &Stats, is_sent: bool) -> Value {
    let others = ProtocolCounter::ALL
        .into_iter()
        .filter(|way| way.is_sent() == is_sent);
    let others = others.map(|way| (way.name().to_owned(), pair(seen.protocol_counter(way))));
    let plain = std::iter::once((
        "plain".to_owned(),
        pair(seen.default_protocol_counter(is_sent)),
    ));
    Value::Object(plain.chain(others).collect())
}

fn pair((operations, bytes): (u64, u64)) -> Value {
    json!({ "operations": operations, "bytes": bytes })
}

fn rate(rate: Rate) -> Value {
    json!({ "operations_per_s": rate.operations, "bytes_per_s": rate.bytes })
}

/// The peer's name, its number where the page has no place for it, or null for any.
fn source(seen: &Stats, from: SourcePeer) -> Value {
    match from {
        SourcePeer::Any => Value::Null,
        SourcePeer::Index(index) => match seen.peers.iter().find(|peer| peer.index == index) {
            Some(peer) => json!(peer.name),
            None => json!(index),
        },
    }
}

fn peer(peer: &PeerStats) -> Value {
    json!({
        "name": peer.name,
        "state": peer.state.name(),
        "unanswered": peer.outstanding,
        "held": peer.queued,
        "offered": peer.unmatched,
        "moving": peer.transferring,
        "kept_bytes": peer.unexpected_bytes,
        "is_full": peer.is_full,
    })
}

fn event(event: &Event) -> Value {
    json!({
        "at_ns": event.at,
        "what": event.kind.name(),
        "number": event.number,
        "about": event.about,
    })
}
