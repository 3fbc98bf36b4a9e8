//! The last calls of an endpoint, as lines of text.

use selvedge_kit::telemetry::Stats;
use selvedge_kit::telemetry::calls::{CallLog, CallRecord, Outcome, RecordKind};

use crate::processes;
use crate::units::{age, bytes, time};

/// Describes the last `max` recorded calls of an endpoint, with their age: a header line, then one
/// line for each call. Returns no lines for an endpoint without a log.
pub(crate) fn describe_endpoint(
    logs: &[CallLog],
    stats: &Stats,
    now: u64,
    max: usize,
) -> Vec<String> {
    let log = logs.iter().find(|log| processes::is_of(&log.header, stats));
    log.map_or_else(Vec::new, |log| describe_recent(log, now, max))
}

/// Describes the last `max` calls of a log, with their age.
pub(crate) fn describe_recent(log: &CallLog, now: u64, max: usize) -> Vec<String> {
    describe_log(log, (now, "ago"), max)
}

/// Describes all calls of a log in a flight record that ends at `end`.
pub(crate) fn describe_before_end(log: &CallLog, end: u64) -> Vec<String> {
    describe_log(log, (end, "before the end"), usize::MAX)
}

fn describe_log(log: &CallLog, (end, suffix): (u64, &str), max: usize) -> Vec<String> {
    let first = log.calls.len().saturating_sub(max);
    let lines = log.calls[first..].iter().map(|call| {
        let seconds = end.saturating_sub(call.at) as f64 / 1e9;
        let call_age = match seconds {
            seconds if seconds < 1.0 => time(seconds * 1e9),
            seconds => age(seconds),
        };
        format!("{call_age:>7} {suffix}: {}", describe_call(call))
    });
    let shown = log.calls.len() - first;
    let header = format!("The last {shown} calls and completions, of {}:", log.count);
    std::iter::once(header).chain(lines).collect()
}

fn describe_call(call: &CallRecord) -> String {
    let CallRecord { name, peer, .. } = call;
    let len = match call.len {
        0 => String::new(),
        len => format!(" of {}", bytes(len as f64)),
    };
    let location = match &**name {
        name if name.starts_with('t') => format!(", tag {:#x}", call.tag),
        "readmsg" | "writemsg" | "inject_write" => {
            format!(", at {:#x} of key {:#x}", call.tag, call.key)
        }
        _ => String::new(),
    };
    let peer = match &**peer {
        "" => String::new(),
        peer => format!(" with {peer}"),
    };
    let outcome = match (call.outcome, call.kind) {
        (Outcome::Failed(errno), RecordKind::Completion(_)) => format!(" has failed: {errno}"),
        (_, RecordKind::Completion(took)) => format!(" is complete, after {}", time(took as f64)),
        (Outcome::InProgress, _) => ": has not returned".to_owned(),
        (Outcome::Done, RecordKind::Post(1)) => String::new(),
        (Outcome::Done, RecordKind::Post(tries)) => format!(", accepted at attempt {tries}"),
        (Outcome::Failed(errno), RecordKind::Post(1)) => format!(": {errno}"),
        (Outcome::Failed(errno), RecordKind::Post(tries)) => {
            format!(", attempted {tries} times: {errno}")
        }
    };
    format!("{name}{len}{peer}{location}{outcome}")
}
