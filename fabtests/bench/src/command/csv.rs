//! Rows of a report as comma-separated values.

use crate::comparison::{Report, Row};

const HEADING: &str = "provider,implementation,manner,bench,size,window,inject,ns,low_ns,high_ns,\
                       mbps,msgs_per_s,p50_rtt_ns,p99_rtt_ns,min_rtt_ns,limit_ns,x_limit,cma_ns,\
                       memcpy_mbps,cacheline_rtt_ns,spread,reps,dropped\n";

/// Formats the rows of a report as lines below a heading.
pub(super) fn format_report(report: &Report) -> String {
    let lines = report.rows.iter().map(format_row);
    HEADING.to_owned() + &lines.collect::<String>()
}

fn format_row(row: &Row) -> String {
    let rtt = row.rtt_ns;
    let fields = [
        quoted(&row.provider),
        quoted(&row.implementation),
        quoted(&row.config),
        row.bench.to_owned(),
        row.size.to_string(),
        row.window.to_string(),
        row.inject.to_string(),
        figure(row.message_ns()),
        figure(row.ci_ns[0]),
        figure(row.ci_ns[1]),
        figure(row.mbps),
        figure(row.msgs_per_s),
        optional(rtt.map(|rtt| rtt.p50)),
        optional(rtt.map(|rtt| rtt.p99)),
        optional(rtt.map(|rtt| rtt.min)),
        optional(row.limit_ns),
        optional(row.ratio),
        optional(row.cma_ns),
        optional(row.memcpy_mbps),
        figure(row.cacheline_rtt_ns),
        figure(row.spread),
        row.reps.to_string(),
        row.dropped.to_string(),
    ];
    fields.join(",") + "\n"
}

/// Quotes text, which may contain commas.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Formats a finite number; returns an empty text for an infinity or NaN.
fn figure(value: f64) -> String {
    if value.is_finite() {
        format!("{value:.4}")
    } else {
        String::new()
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, figure)
}
