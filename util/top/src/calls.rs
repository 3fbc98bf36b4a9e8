//! The last calls of an endpoint, as lines of text.

use selvedge_kit::telemetry::Stats;
use selvedge_kit::telemetry::calls::{CallLog, CallRecord, Outcome, RecordKind};

use crate::processes;
use crate::units::{age, bytes, time};

/// The last `max` recorded calls of an endpoint, with their age.
pub(crate) fn lines(all: &[CallLog], stats: &Stats, now: u64, max: usize) -> Vec<String> {
    let own = all.iter().find(|it| processes::is_of(&it.header, stats));
    own.map_or_else(Vec::new, |own| last(own, now, max))
}

/// As [`lines`], for a call log that was found already.
pub(crate) fn last(own: &CallLog, now: u64, max: usize) -> Vec<String> {
    of(own, (now, "ago"), max)
}

/// All calls of an endpoint in a flight record.
pub(crate) fn left(own: &CallLog, end: u64) -> Vec<String> {
    of(own, (end, "before the end"), usize::MAX)
}

fn of(own: &CallLog, (now, since): (u64, &str), max: usize) -> Vec<String> {
    let first = own.calls.len().saturating_sub(max);
    let last = own.calls[first..].iter().map(|call| {
        let before = now.saturating_sub(call.at) as f64 / 1e9;
        let before = match before {
            short if short < 1.0 => time(short * 1e9),
            long => age(long),
        };
        format!("{before:>7} {since}: {}", sentence(call))
    });
    let shown = own.calls.len() - first;
    let head = format!("The last {shown} calls and completions, of {}:", own.count);
    std::iter::once(head).chain(last).collect()
}

fn sentence(call: &CallRecord) -> String {
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
    let with = match &**peer {
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
    format!("{name}{len}{with}{location}{outcome}")
}
