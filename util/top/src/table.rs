//! The endpoints as a table of text, 80 columns wide, and how one of them is told of in lines.

use std::fmt::Write;

use selvedge_kit::telemetry::{Gauge, OpCounter, ProtocolCounter, Stats};

use crate::options::Options;
use crate::processes;
use crate::rates::{self, Measured};
use crate::units::{bytes, count};

/// One table of what happens in an interval.
pub(crate) fn once(options: &Options) -> anyhow::Result<String> {
    let measured = rates::measured(options)?;
    if measured.is_empty() {
        return Ok("no endpoints\n".to_owned());
    }
    let mut text = format!("{HEAD}\n");
    for row in &measured {
        text += &self::row(row);
        text += "\n";
        for line in details(&row.seen) {
            let _ = writeln!(text, "        {line}");
        }
    }
    Ok(text)
}

pub(crate) const HEAD: &str =
    "    PID COMMAND   PROV ENDPOINT        OUT/s  OUTB/s    IN/s   INB/s POSTD UNEXP";

/// A line of the table.
pub(crate) fn row(row: &Measured) -> String {
    let seen = &row.seen;
    let command = processes::command(seen.pid).unwrap_or_else(|| "(gone)".to_owned());
    format!(
        "{:>7} {:<9} {:<4} {:<13} {:>7} {:>7} {:>7} {:>7} {:>5} {:>5}",
        seen.pid,
        cut(&command, 9),
        cut(&seen.provider, 4),
        tail(&seen.name, 13),
        count(row.sent.operations + row.one_sided.operations),
        bytes(row.sent.bytes + row.one_sided.bytes),
        count(row.received.operations),
        bytes(row.received.bytes),
        count(seen.gauge(Gauge::Posted) as f64),
        count(seen.gauge(Gauge::Unexpected) as f64),
    )
}

/// What else there is to say of an endpoint, up to 72 columns in each line.
pub(crate) fn details(seen: &Stats) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(ways(seen, true).map(|ways| format!("sent {ways}")));
    lines.extend(ways(seen, false).map(|ways| format!("received {ways}")));
    lines.extend(one_sided(seen));
    lines.extend(queues(seen));
    for peer in &seen.peers {
        let waits = [
            (peer.outstanding, "unanswered"),
            (peer.queued, "held"),
            (peer.unmatched, "offered"),
            (peer.transferring, "moving"),
        ];
        let waits: String = waits
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!(", {number} {what}"))
            .collect();
        let full = if peer.is_full { ", full" } else { "" };
        let state = peer.state.name();
        lines.push(format!(
            "peer {} {state}{waits}{full}",
            tail(&peer.name, 30)
        ));
    }
    lines
}

/// Messages by their ways: `inline 1.2M (9.6MB), cma 12 (4.5G)`.
fn ways(seen: &Stats, is_sent: bool) -> Option<String> {
    let plain = match &*seen.provider {
        "shm" => "inline",
        provider => provider,
    };
    let plain = (plain, seen.default_protocol_counter(is_sent));
    let others = ProtocolCounter::ALL
        .into_iter()
        .filter(|way| way.is_sent() == is_sent);
    let all =
        std::iter::once(plain).chain(others.map(|way| (way.name(), seen.protocol_counter(way))));
    let parts: Vec<String> = all
        .filter(|(_, (messages, _))| *messages > 0)
        .map(|(name, (messages, len))| {
            format!("{name} {} ({})", count(messages as f64), bytes(len as f64))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn one_sided(seen: &Stats) -> Option<String> {
    let whats = [
        (OpCounter::Read, "reads"),
        (OpCounter::Written, "writes"),
        (OpCounter::PeerRead, "reads by peers"),
        (OpCounter::PeerWritten, "writes by peers"),
        (OpCounter::SendErrors, "failed"),
        (OpCounter::ReceiveErrors, "receives failed"),
    ];
    let parts: Vec<String> = whats
        .into_iter()
        .map(|(what, name)| (seen.op_counter(what).0, name))
        .filter(|(number, _)| *number > 0)
        .map(|(number, name)| format!("{name} {}", count(number as f64)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Queues that are not empty.
fn queues(seen: &Stats) -> Option<String> {
    let gauges = [
        (Gauge::Outstanding, "not complete"),
        (Gauge::Unread, "completions unread"),
    ];
    let mut parts: Vec<String> = gauges
        .into_iter()
        .filter(|(gauge, _)| seen.gauge(*gauge) > 0)
        .map(|(gauge, name)| format!("{} {name}", count(seen.gauge(gauge) as f64)))
        .collect();
    let kept = seen.gauge(Gauge::UnexpectedBytes);
    if kept > 0 {
        let most = seen.gauge(Gauge::UnexpectedLimit) as f64;
        parts.push(format!(
            "{} of {} unexpected",
            bytes(kept as f64),
            bytes(most)
        ));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A text in lines of at most `width` columns, broken between words where that can be done; lines
/// after the first are indented.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(INDENT.len() + 1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut rest = word;
        while let Some(line) = lines.last_mut() {
            let is_begun = !line.trim_start().is_empty();
            let used = line.chars().count() + usize::from(is_begun);
            let needed = rest.chars().count();
            if used + needed <= width {
                line.push_str(if is_begun { " " } else { "" });
                line.push_str(rest);
                break;
            }
            if !is_begun {
                let fits = rest.char_indices().nth(width - used);
                let (head, tail) = rest.split_at(fits.map_or(rest.len(), |(at, _)| at));
                line.push_str(head);
                rest = tail;
            }
            lines.push(INDENT.to_owned());
        }
    }
    lines
}

const INDENT: &str = "  ";

/// The beginning of a text.
pub(crate) fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// The end of a name, which tells more than its beginning.
pub(crate) fn tail(text: &str, most: usize) -> String {
    let len = text.chars().count();
    match len <= most {
        true => text.to_owned(),
        false => std::iter::once('…')
            .chain(text.chars().skip(len + 1 - most))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words_and_lose_none() {
        let text = "an operation failed (Connection refused, error 111): nobody has that name";
        let lines = wrapped(text, 30);
        assert_eq!(
            lines,
            [
                "an operation failed",
                "  (Connection refused, error",
                "  111): nobody has that name"
            ]
        );
        assert_eq!(wrapped(text, 80), [text]);
        let name = "a".repeat(50);
        let lines = wrapped(&format!("met {name} x"), 20);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 20),
            "{lines:?}"
        );
        let kept = lines.concat().replace(' ', "");
        assert_eq!(kept, format!("met{name}x"));
        assert!(wrapped(text, 0).len() > 1);
    }
}
