//! JSON output: the endpoints, and the statistics of hooks. New versions only add fields.

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

/// Measures the endpoints that the options select, and returns all their statistics.
pub(crate) fn measure(options: &Options) -> anyhow::Result<Value> {
    let endpoints = rates::measure(options)?;
    let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
    let pids = processes::pids()?
        .into_iter()
        .filter(|pid| options.shows(*pid));
    let without_page: Vec<Value> = pids.flat_map(hooked_without_page).collect();
    Ok(json!({ "endpoints": endpoints, "without_page": without_page }))
}

/// Returns the statistics of hooks for objects without a statistics page.
fn hooked_without_page(pid: u32) -> Vec<Value> {
    let (latencies, calls) = (processes::latencies(pid), processes::calls(pid));
    let pages = processes::endpoints_of(pid);
    let headers = latencies.iter().map(|latencies| &latencies.header);
    let headers = headers.chain(calls.iter().map(|log| &log.header));
    let mut headers: Vec<&PageHeader> = headers
        .filter(|header| !processes::has_page(header, &pages))
        .collect();
    let name = |header: &PageHeader| (header.provider.clone(), header.name.clone());
    headers.sort_by_key(|header| name(header));
    headers.dedup_by_key(|header| name(header));
    let object = |header: &PageHeader| {
        let is_same = |other: &PageHeader| name(other) == name(header);
        json!({
            "pid": pid,
            "command": processes::command(pid),
            "provider": header.provider,
            "name": header.name,
            "opened_ns": header.opened,
            "latency": latency(&latencies, is_same),
            "calls": last_calls(&calls, is_same),
        })
    };
    headers.into_iter().map(object).collect()
}

fn endpoint(measured: &Measured) -> Value {
    let stats = &measured.stats;
    let is_of_endpoint = |header: &PageHeader| processes::is_of(header, stats);
    let counters: Map<String, Value> = OpCounter::ALL
        .into_iter()
        .map(|counter| (counter.name().to_owned(), pair(stats.op_counter(counter))))
        .collect();
    json!({
        "pid": stats.pid,
        "command": processes::command(stats.pid),
        "provider": stats.provider,
        "name": stats.name,
        "opened_ns": stats.opened,
        "looked_ns": stats.snapshot_time,
        "is_whole": stats.is_consistent,
        "counts": counters,
        "sent_by_way": protocols(stats, true),
        "received_by_way": protocols(stats, false),
        "rates": {
            "sent": rate(measured.sent),
            "received": rate(measured.received),
            "one_sided": rate(measured.one_sided),
        },
        "queues": {
            "posted": stats.gauge(Gauge::Posted),
            "unexpected": stats.gauge(Gauge::Unexpected),
            "unexpected_bytes": stats.gauge(Gauge::UnexpectedBytes),
            "unexpected_limit": stats.gauge(Gauge::UnexpectedLimit),
            "outstanding": stats.gauge(Gauge::Outstanding),
            "unread": stats.gauge(Gauge::Unread),
            "peers": stats.gauge(Gauge::Peers),
        },
        "waits": stats.posted.iter().map(|wait| json!({
            "tagged": wait.is_tagged,
            "from": source(stats, wait.from),
            "tag": wait.tag,
            "ignore": wait.ignore,
            "len": wait.len,
        })).collect::<Vec<_>>(),
        "unexpected": stats.unexpected.iter().map(|message| json!({
            "tagged": message.is_tagged,
            "from": source(stats, message.from),
            "tag": message.tag,
            "len": message.len,
        })).collect::<Vec<_>>(),
        "peers": stats.peers.iter().map(peer).collect::<Vec<_>>(),
        "events": stats.events.iter().map(event).collect::<Vec<_>>(),
        "latency": latency(&processes::latencies(stats.pid), is_of_endpoint),
        "calls": last_calls(&processes::calls(stats.pid), is_of_endpoint),
    })
}

/// Returns the latencies of the object whose header `predicate` accepts, or null if they were not
/// recorded.
fn latency(all: &[LatencyStats], predicate: impl Fn(&PageHeader) -> bool) -> Value {
    let latencies = all.iter().find(|latencies| predicate(&latencies.header));
    latencies.map_or(Value::Null, |latencies| {
        json!(times::json(&latencies.histograms))
    })
}

/// Returns the last calls of the object whose header `predicate` accepts, or null if they were not
/// recorded.
fn last_calls(all: &[CallLog], predicate: impl Fn(&PageHeader) -> bool) -> Value {
    let log = all.iter().find(|log| predicate(&log.header));
    log.map_or(Value::Null, |log| {
        json!(log.calls.iter().map(call).collect::<Vec<_>>())
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

fn protocols(stats: &Stats, is_sent: bool) -> Value {
    let others = ProtocolCounter::ALL
        .into_iter()
        .filter(|protocol| protocol.is_sent() == is_sent);
    let others = others.map(|protocol| {
        (
            protocol.name().to_owned(),
            pair(stats.protocol_counter(protocol)),
        )
    });
    let plain = std::iter::once((
        "plain".to_owned(),
        pair(stats.default_protocol_counter(is_sent)),
    ));
    Value::Object(plain.chain(others).collect())
}

fn pair((operations, bytes): (u64, u64)) -> Value {
    json!({ "operations": operations, "bytes": bytes })
}

fn rate(rate: Rate) -> Value {
    json!({ "operations_per_s": rate.operations, "bytes_per_s": rate.bytes })
}

/// Returns the peer's name, or the peer's index if the page has no entry for the peer, or null for
/// any peer.
fn source(stats: &Stats, from: SourcePeer) -> Value {
    match from {
        SourcePeer::Any => Value::Null,
        SourcePeer::Index(index) => match stats.peers.iter().find(|peer| peer.index == index) {
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
