//! The endpoints as a text table, 80 columns wide, with detail lines for each endpoint.

use std::fmt::Write;

use selvedge_kit::telemetry::{Gauge, OpCounter, ProtocolCounter, Stats};

use crate::options::Options;
use crate::processes;
use crate::rates::{self, Measured};
use crate::units::{bytes, count};

/// Measures the rates of one interval, and returns them as a table.
pub(crate) fn measure(options: &Options) -> anyhow::Result<String> {
    let measured = rates::measure(options)?;
    if measured.is_empty() {
        return Ok("no endpoints\n".to_owned());
    }
    let mut text = format!("{HEADER}\n");
    for row in &measured {
        text += &format_row(row);
        text += "\n";
        for line in details(&row.stats) {
            let _ = writeln!(text, "        {line}");
        }
    }
    Ok(text)
}

pub(crate) const HEADER: &str =
    "    PID COMMAND   PROV ENDPOINT        OUT/s  OUTB/s    IN/s   INB/s POSTD UNEXP";

/// Formats a row of the table.
pub(crate) fn format_row(row: &Measured) -> String {
    let stats = &row.stats;
    let command = processes::command(stats.pid).unwrap_or_else(|| "(ended)".to_owned());
    format!(
        "{:>7} {:<9} {:<4} {:<13} {:>7} {:>7} {:>7} {:>7} {:>5} {:>5}",
        stats.pid,
        cut(&command, 9),
        cut(&stats.provider, 4),
        tail(&stats.name, 13),
        count(row.sent.operations + row.one_sided.operations),
        bytes(row.sent.bytes + row.one_sided.bytes),
        count(row.received.operations),
        bytes(row.received.bytes),
        count(stats.gauge(Gauge::Posted) as f64),
        count(stats.gauge(Gauge::Unexpected) as f64),
    )
}

/// Returns the detail lines of an endpoint, each at most 72 columns wide.
pub(crate) fn details(stats: &Stats) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(protocols(stats, true).map(|protocols| format!("sent {protocols}")));
    lines.extend(protocols(stats, false).map(|protocols| format!("received {protocols}")));
    lines.extend(one_sided(stats));
    lines.extend(queues(stats));
    for peer in &stats.peers {
        let counts = [
            (peer.outstanding, "unanswered"),
            (peer.queued, "held"),
            (peer.unmatched, "offered"),
            (peer.transferring, "moving"),
        ];
        let counts: String = counts
            .iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, name)| format!(", {number} {name}"))
            .collect();
        let full = if peer.is_full { ", full" } else { "" };
        let state = peer.state.name();
        lines.push(format!(
            "peer {} {state}{counts}{full}",
            tail(&peer.name, 30)
        ));
    }
    lines
}

/// Formats the numbers of messages by protocol: `inline 1.2M (9.6MB), cma 12 (4.5G)`.
fn protocols(stats: &Stats, is_sent: bool) -> Option<String> {
    let plain = match &*stats.provider {
        "shm" => "inline",
        provider => provider,
    };
    let plain = (plain, stats.default_protocol_counter(is_sent));
    let others = ProtocolCounter::ALL
        .into_iter()
        .filter(|protocol| protocol.is_sent() == is_sent);
    let all = std::iter::once(plain)
        .chain(others.map(|protocol| (protocol.name(), stats.protocol_counter(protocol))));
    let texts: Vec<String> = all
        .filter(|(_, (messages, _))| *messages > 0)
        .map(|(name, (messages, len))| {
            format!("{name} {} ({})", count(messages as f64), bytes(len as f64))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn one_sided(stats: &Stats) -> Option<String> {
    let counters = [
        (OpCounter::Read, "reads"),
        (OpCounter::Written, "writes"),
        (OpCounter::PeerRead, "reads by peers"),
        (OpCounter::PeerWritten, "writes by peers"),
        (OpCounter::SendErrors, "failed"),
        (OpCounter::ReceiveErrors, "receives failed"),
    ];
    let texts: Vec<String> = counters
        .into_iter()
        .map(|(counter, name)| (stats.op_counter(counter).0, name))
        .filter(|(number, _)| *number > 0)
        .map(|(number, name)| format!("{name} {}", count(number as f64)))
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Formats the lengths of queues that are not empty.
fn queues(stats: &Stats) -> Option<String> {
    let gauges = [
        (Gauge::Outstanding, "not complete"),
        (Gauge::Unread, "completions unread"),
    ];
    let mut texts: Vec<String> = gauges
        .into_iter()
        .filter(|(gauge, _)| stats.gauge(*gauge) > 0)
        .map(|(gauge, name)| format!("{} {name}", count(stats.gauge(gauge) as f64)))
        .collect();
    let message = stats.gauge(Gauge::UnexpectedBytes);
    if message > 0 {
        let max = stats.gauge(Gauge::UnexpectedLimit) as f64;
        texts.push(format!(
            "{} of {} unexpected",
            bytes(message as f64),
            bytes(max)
        ));
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Wraps a text into lines of at most `width` columns, between words where possible. Lines after
/// the first are indented.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
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
                let end = rest.char_indices().nth(width - used);
                let end = end.map_or(rest.len(), |(index, _)| index);
                let (head, tail) = rest.split_at(end);
                line.push_str(head);
                rest = tail;
            }
            lines.push(INDENT.to_owned());
        }
    }
    lines
}

const INDENT: &str = "  ";

/// Returns at most `max` characters from the start of a text.
pub(crate) fn cut(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

/// Returns at most `max` characters from the end of a text: the end of a name is its most specific
/// part. An ellipsis replaces the start.
pub(crate) fn tail(text: &str, max: usize) -> String {
    let len = text.chars().count();
    if len <= max {
        text.to_owned()
    } else {
        std::iter::once('…')
            .chain(text.chars().skip(len + 1 - max))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_breaks_between_words_and_keeps_all() {
        let text = "an operation failed (Connection refused, error 111): nobody has that name";
        let lines = wrap(text, 30);
        assert_eq!(
            lines,
            [
                "an operation failed",
                "  (Connection refused, error",
                "  111): nobody has that name"
            ]
        );
        assert_eq!(wrap(text, 80), [text]);
        let name = "a".repeat(50);
        let lines = wrap(&format!("met {name} x"), 20);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 20),
            "{lines:?}"
        );
        let message = lines.concat().replace(' ', "");
        assert_eq!(message, format!("met{name}x"));
        assert!(wrap(text, 0).len() > 1);
    }
}
