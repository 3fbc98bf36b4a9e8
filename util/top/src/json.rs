//! The endpoints as JSON. Fields are only ever added.

use selvedge_kit::sight::calls::{Half, Outcome, SeenCall};
use selvedge_kit::sight::{Directed, Event, Gauge, Seen, SeenPeer, Tally, Way};
use serde_json::{Map, Value, json};

use crate::processes;
use crate::rates::{Measured, Rate};
use crate::times;

pub(crate) fn endpoints(measured: &[Measured]) -> Value {
    let endpoints: Vec<Value> = measured.iter().map(endpoint).collect();
    json!({ "endpoints": endpoints })
}

fn endpoint(measured: &Measured) -> Value {
    let seen = &measured.seen;
    let tallies: Map<String, Value> = Tally::ALL
        .into_iter()
        .map(|what| (what.name().to_owned(), pair(seen.tally(what))))
        .collect();
    json!({
        "pid": seen.pid,
        "command": processes::command(seen.pid),
        "provider": seen.provider,
        "name": seen.name,
        "opened_ns": seen.opened,
        "looked_ns": seen.looked,
        "is_whole": seen.is_whole,
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
        "waits": seen.waits.iter().map(|wait| json!({
            "tagged": wait.is_tagged,
            "from": source(seen, wait.from),
            "tag": wait.tag,
            "ignore": wait.ignore,
            "len": wait.len,
        })).collect::<Vec<_>>(),
        "unexpected": seen.kept.iter().map(|kept| json!({
            "tagged": kept.is_tagged,
            "from": source(seen, kept.from),
            "tag": kept.tag,
            "len": kept.len,
        })).collect::<Vec<_>>(),
        "peers": seen.peers.iter().map(peer).collect::<Vec<_>>(),
        "events": seen.events.iter().map(event).collect::<Vec<_>>(),
        "latency": latency(seen),
        "calls": calls(seen),
    })
}

/// How long operations took; null where that is not known.
fn latency(seen: &Seen) -> Value {
    let all = processes::latencies(seen.pid);
    let own = all.iter().find(|it| processes::is_of(&it.head, seen));
    own.map_or(Value::Null, |own| json!(times::json(&own.rows)))
}

/// The last calls, likewise.
fn calls(seen: &Seen) -> Value {
    let all = processes::calls(seen.pid);
    let own = all.iter().find(|it| processes::is_of(&it.head, seen));
    own.map_or(Value::Null, |own| {
        json!(own.calls.iter().map(call).collect::<Vec<_>>())
    })
}

fn call(call: &SeenCall) -> Value {
    let (tries, took) = match call.half {
        Half::Post(tries) => (json!(tries), Value::Null),
        Half::Completion(took) => (Value::Null, json!(took)),
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
            Outcome::Inside => Value::Null,
            Outcome::Done => json!(0),
            Outcome::Failed(errno) => json!(-errno.as_raw()),
        },
    })
}

fn ways(seen: &Seen, is_sent: bool) -> Value {
    let others = Way::ALL.into_iter().filter(|way| way.is_sent() == is_sent);
    let others = others.map(|way| (way.name().to_owned(), pair(seen.way(way))));
    let plain = std::iter::once(("plain".to_owned(), pair(seen.plain(is_sent))));
    Value::Object(plain.chain(others).collect())
}

fn pair((operations, bytes): (u64, u64)) -> Value {
    json!({ "operations": operations, "bytes": bytes })
}

fn rate(rate: Rate) -> Value {
    json!({ "operations_per_s": rate.operations, "bytes_per_s": rate.bytes })
}

/// The peer's name, its number where the page has no place for it, or null for any.
fn source(seen: &Seen, from: Directed) -> Value {
    match from {
        Directed::Any => Value::Null,
        Directed::To(index) => match seen.peers.iter().find(|peer| peer.index == index) {
            Some(peer) => json!(peer.name),
            None => json!(index),
        },
    }
}

fn peer(peer: &SeenPeer) -> Value {
    json!({
        "name": peer.name,
        "state": peer.state.name(),
        "unanswered": peer.unanswered,
        "held": peer.held,
        "offered": peer.offered,
        "moving": peer.moving,
        "kept_bytes": peer.kept,
        "is_full": peer.is_full,
    })
}

fn event(event: &Event) -> Value {
    json!({
        "at_ns": event.at,
        "what": event.what.name(),
        "number": event.number,
        "about": event.about,
    })
}
