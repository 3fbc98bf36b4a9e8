//! Printing a report: as JSON or as tables.

use std::collections::BTreeSet;

use comfy_table::Table;

use super::csv;
use crate::comparison::{MemoryUse, Opening, Report, Row, left_out};
use crate::fabric::Bench;
use crate::measure::size;
use crate::output;
use crate::output::table::{self, figure, optional};

/// The output format of a report.
#[derive(Clone, Copy, Debug)]
pub(super) enum Format {
    Tables,
    Json,
    Csv,
}

/// Prints a report on standard output. Prints a warning on standard error if no run counts.
///
/// # Errors
/// When the report cannot be written as JSON.
pub(super) fn print_report(report: &Report, format: Format) -> anyhow::Result<()> {
    let text = match format {
        Format::Tables => format_tables(report),
        Format::Json => serde_json::to_string(report)? + "\n",
        Format::Csv => csv::format_report(report),
    };
    output::print(&text);
    warn_if_empty(report);
    Ok(())
}

/// Prints a warning on standard error if every run of a report was left out.
fn warn_if_empty(report: &Report) {
    let has_figures = report.rows.iter().any(|row| row.reps > 0);
    let dropped = report.rows.iter().map(|row| row.dropped).sum();
    if let (false, Some(sentence)) = (has_figures, left_out(0, dropped)) {
        let program = output::program();
        eprintln!("{program}: {sentence}; run more with --reps");
    }
}

fn format_tables(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", report.machine.headline(), limits_line(report));
    let mut benches: Vec<_> = report.rows.iter().map(|row| row.bench).collect();
    benches.dedup();
    for bench in benches {
        let rows: Vec<_> = report
            .rows
            .iter()
            .filter(|row| row.bench == bench)
            .collect();
        text += &format!(
            "\n{bench} over {}\n{}\n",
            contestant_names(&rows),
            bench_tables(&rows)
        );
        text += &left_out_line(&rows);
        text += &processor_time_lines(&rows);
    }
    for opening in &report.opening {
        text += &format!("\n{}\n", opening_line(opening));
    }
    if !report.memory.is_empty() {
        let table = memory_table(&report.memory);
        text += &format!("\nmemory of an idle endpoint, KiB\n{table}\n");
    }
    text
}

/// The limits above the tables, in one line.
fn limits_line(report: &Report) -> String {
    let limits = &report.limits;
    format!(
        "limits: cache line {} ns and one-line ring {} ns (p50 {} ns) per round trip; ring {} M \
         messages/s",
        optional(limits.cacheline_rtt_ns),
        optional(limits.ring_rtt_mean_ns),
        optional(limits.ring_rtt_ns),
        optional(limits.ring_msgs_per_s.map(|rate| rate / 1e6)),
    )
}

fn contestant_names(rows: &[&Row]) -> String {
    let mut names: Vec<_> = rows
        .iter()
        .map(|row| match row.config.as_str() {
            "" => format!("{} of {}", row.provider, row.implementation),
            config => format!("{} of {} ({config})", row.provider, row.implementation),
        })
        .collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names.join(", ")
}

/// The table of a benchmark: of the measured contestant alone, or beside each baseline.
fn bench_tables(rows: &[&Row]) -> String {
    let (measured, mut baselines): (Vec<&Row>, Vec<&Row>) = rows
        .iter()
        .partition(|row| contestant_key(row) == contestant_key(rows[0]));
    if rows.iter().all(|row| row.bench == Bench::TaggedRing.name()) {
        return ring_table(rows).to_string();
    }
    let is_pingpong = rows[0].rtt_ns.is_some();
    if baselines.is_empty() {
        let measured = measured.into_iter();
        return if is_pingpong {
            pingpong_table(measured).to_string()
        } else {
            stream_table(measured).to_string()
        };
    }
    let mut tables = Vec::new();
    while let Some(&first) = baselines.first() {
        let of_first = |row: &&Row| contestant_key(row) == contestant_key(first);
        let (baseline, others): (Vec<&Row>, _) = baselines.into_iter().partition(of_first);
        baselines = others;
        let is_baseline =
            first.implementation != rows[0].implementation || first.provider != rows[0].provider;
        let (is_first, is_last) = (tables.is_empty(), baselines.is_empty());
        let name = match (is_first, is_last) {
            (true, true) => String::new(),
            _ => format!("baseline: {}\n", contestant_names(&baseline)),
        };
        let pairs = measured.iter().copied().zip(baseline);
        tables.push(name + &versus_table(is_pingpong, is_baseline, pairs).to_string());
    }
    tables.join("\n")
}

fn pingpong_table<'a>(rows: impl Iterator<Item = &'a Row>) -> Table {
    let mut table = table::new(&[
        "size",
        "one way us\np50",
        "\np99",
        "MB/s",
        "k msgs/s",
        "round trip ns\nmean",
        "ring ns",
        "limit us\none way",
        "x limit",
        "CMA us",
        "memcpy\nMB/s",
        "spread\n%",
    ]);
    for row in rows {
        let Some(rtt) = row.rtt_ns else { continue };
        table.add_row([
            size::text(row.size),
            figure(rtt.p50 / 2e3),
            figure(rtt.p99 / 2e3),
            figure(row.mbps),
            figure(row.msgs_per_s / 1e3),
            figure(rtt.mean),
            figure(row.ring_rtt_ns),
            optional(row.limit_ns.map(|ns| ns / 1e3)),
            optional(row.ratio),
            optional(row.cma_ns.map(|ns| ns / 1e3)),
            optional(row.memcpy_mbps),
            figure(row.spread * 100.0),
        ]);
    }
    table
}

/// One line for each contestant and size.
fn ring_table(rows: &[&Row]) -> Table {
    let mut table = table::new(&[
        "size",
        "contestant",
        "exchange us\nmean",
        "\np50",
        "\np90",
        "\np99",
        "spread\n%",
    ]);
    for row in rows {
        let Some(rtt) = row.rtt_ns else { continue };
        table.add_row([
            size::text(row.size),
            row.implementation.clone(),
            figure(rtt.mean / 1e3),
            figure(rtt.p50 / 1e3),
            optional(rtt.quantile(0.9).map(|ns| ns / 1e3)),
            figure(rtt.p99 / 1e3),
            figure(row.spread * 100.0),
        ]);
    }
    table
}

fn stream_table<'a>(rows: impl Iterator<Item = &'a Row>) -> Table {
    let mut table = table::new(&[
        "size",
        "window",
        "ns per\nmessage",
        "M msgs/s",
        "MB/s",
        "limit ns\nper message",
        "x limit",
        "CMA ns",
        "memcpy\nMB/s",
        "spread\n%",
    ]);
    for row in rows {
        table.add_row([
            size::text(row.size),
            row.window.to_string(),
            figure(row.message_ns()),
            figure(row.msgs_per_s / 1e6),
            figure(row.mbps),
            optional(row.limit_ns),
            optional(row.ratio),
            optional(row.cma_ns),
            optional(row.memcpy_mbps),
            figure(row.spread * 100.0),
        ]);
    }
    table
}

fn versus_table<'a>(
    is_pingpong: bool,
    is_baseline: bool,
    pairs: impl Iterator<Item = (&'a Row, &'a Row)>,
) -> Table {
    let time_label = if is_pingpong {
        "one way us"
    } else {
        "us per message"
    };
    let other_label = if is_baseline { "baseline" } else { "plain" };
    let mut table = table::new(&[
        "size",
        &format!("{time_label}\nthis"),
        &format!("\n{other_label}"),
        &format!("this/{other_label}"),
        "MB/s\nthis",
        &format!("\n{other_label}"),
        "limit us",
        "CMA us",
        "x limit\nthis",
        &format!("\n{other_label}"),
        "spread %\nthis",
        &format!("\n{other_label}"),
    ]);
    for (measured, baseline) in pairs {
        table.add_row([
            size::text(measured.size),
            figure(measured.message_ns() / 1e3),
            figure(baseline.message_ns() / 1e3),
            figure(measured.message_ns() / baseline.message_ns()),
            figure(measured.mbps),
            figure(baseline.mbps),
            optional(measured.limit_ns.map(|ns| ns / 1e3)),
            optional(measured.cma_ns.map(|ns| ns / 1e3)),
            optional(measured.ratio),
            optional(baseline.ratio),
            figure(measured.spread * 100.0),
            figure(baseline.spread * 100.0),
        ]);
    }
    table
}

fn opening_line(opening: &Opening) -> String {
    let us = |ns: f64, [low, high]: [f64; 2]| {
        let (ns, low, high) = (figure(ns / 1e3), figure(low / 1e3), figure(high / 1e3));
        format!("{ns} us ({low} - {high})")
    };
    format!(
        "{}: opening an endpoint takes {}, the first round trip with a new peer {}",
        opening.implementation,
        us(opening.open_ns, opening.open_ci_ns),
        us(opening.first_round_trip_ns, opening.first_ci_ns)
    )
}

fn memory_table(uses: &[MemoryUse]) -> Table {
    let mut table = table::new(&[
        "",
        "PSS",
        "PSS of files",
        "RSS",
        "RSS shared",
        "address space",
    ]);
    for memory in uses {
        table.add_row([
            memory.implementation.clone(),
            memory.pss_kib.to_string(),
            memory.file_kib.to_string(),
            memory.rss_kib.to_string(),
            memory.shm_kib.to_string(),
            memory.mapped_kib.to_string(),
        ]);
    }
    table
}

/// The attributes that identify the contestant of a row.
fn contestant_key(row: &Row) -> (&str, &str, &str) {
    (&row.provider, &row.implementation, &row.config)
}

/// Lines with the processor time of each row that has one.
fn processor_time_lines(rows: &[&Row]) -> String {
    let lines = rows.iter().filter_map(|row| {
        let waiting = row.waiting_cpu.map_or_else(String::new, |share| {
            format!(
                "; a process that waits takes {} % of one",
                figure(share * 100.0)
            )
        });
        Some(format!(
            "{}, {} at {}: {} cores in use{waiting}\n",
            row.implementation,
            row.config,
            size::text(row.size),
            figure(row.cores?),
        ))
    });
    lines.collect()
}

/// A line with the number of runs that were left out; empty if every run counts.
fn left_out_line(rows: &[&Row]) -> String {
    let reps = rows.iter().map(|row| row.reps).sum();
    let dropped = rows.iter().map(|row| row.dropped).sum();
    left_out(reps, dropped).map_or_else(String::new, |sentence| sentence + "\n")
}
