//! Latencies as a table that is 80 columns wide, with a bar for each class of times.

use std::fmt::Write;

use selvedge_kit::telemetry::latency::{Histogram, LatencyStats};
use serde_json::{Value, json};

use crate::options::Options;
use crate::processes;
use crate::units::{count, time};

/// Columns of the bars.
const BARS: usize = 11;

pub(crate) const HEADER: &str =
    "OPERATION  BYTES     COUNT   MEAN    50%    90%    99%  99.9%    MAX SHORT>LONG";

/// The text that replaces the table if no latencies were recorded.
pub(crate) const NONE: &str = "no latencies: only programs that run with FI_HOOK=perf record them";

/// Returns the latencies of the processes that the options select.
pub(crate) fn format_all(options: &Options) -> anyhow::Result<String> {
    let mut text = String::new();
    let pids = processes::pids()?
        .into_iter()
        .filter(|pid| options.shows(*pid));
    for latencies in pids.flat_map(processes::latencies) {
        text += &format_endpoint(&latencies);
    }
    if text.is_empty() {
        text = format!("{NONE}\n");
    }
    Ok(text)
}

/// Returns the latencies of an endpoint as a title and a table.
pub(crate) fn format_endpoint(latencies: &LatencyStats) -> String {
    let header = &latencies.header;
    let command = processes::command(header.pid).unwrap_or_else(|| "ended".to_owned());
    let mut text = format!(
        "process {} ({command}), {}\n",
        header.pid,
        processes::title(header)
    );
    for line in lines(&latencies.histograms) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Returns the lines of the table.
pub(crate) fn lines(rows: &[Histogram]) -> Vec<String> {
    let mut used = (0..rows.first().map_or(0, |row| row.buckets.len()))
        .filter(|&bucket| rows.iter().any(|row| row.buckets[bucket] > 0));
    let first = used.next().unwrap_or(0);
    let last = used.next_back().unwrap_or(first);
    let header = std::iter::once(HEADER.to_owned());
    header
        .chain(rows.iter().map(|row| format_row(row, first, last)))
        .collect()
}

fn format_row(row: &Histogram, first: usize, last: usize) -> String {
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|fraction| row.quantile(fraction));
    let mut line = format!(
        "{:<10} {:<8} {:>6}",
        row.op.name(),
        sizes(row),
        count(row.count() as f64)
    );
    for nanoseconds in [row.mean(), p50, p90, p99, p999, row.longest] {
        let _ = write!(line, " {:>6}", time(nanoseconds as f64));
    }
    line + " " + bars(row, first, last).trim_end()
}

/// Formats the distribution of the latencies. All rows of a table share the scale of the columns,
/// from the bucket `first` to the bucket `last`.
fn bars(row: &Histogram, first: usize, last: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut sums = [0_u64; BARS];
    for (bucket, number) in row.buckets.iter().enumerate().take(last + 1).skip(first) {
        let column = (bucket - first) * BARS / (last - first + 1);
        sums[column] = sums[column].saturating_add(*number);
    }
    let max = sums.iter().copied().max().unwrap_or(1).max(1);
    let height = |sum: u64| HEIGHTS[(u128::from(sum) * 7 / u128::from(max)) as usize];
    let bar = |&sum: &u64| if sum == 0 { ' ' } else { height(sum) };
    sums.iter().map(bar).collect()
}

/// Formats the size range of a row in short form: `8-15`, `4-8K`.
fn sizes(row: &Histogram) -> String {
    const UNITS: [(&str, u32); 3] = [("K", 10), ("M", 20), ("G", 30)];
    match row.sizes() {
        (from, to) if from == to => from.to_string(),
        (from, to) if from < 1024 => format!("{from}-{to}"),
        (from, to) => {
            let bit = from.ilog2();
            let (unit, shift) = UNITS[((bit / 10) as usize - 1).min(2)];
            match to {
                u64::MAX => format!("{}{unit}..", from >> shift),
                _ if bit % 10 == 9 => format!("{}{unit}..", from >> shift),
                _ => format!("{}-{}{unit}", from >> shift, (to + 1) >> shift),
            }
        }
    }
}

/// Returns the rows as JSON.
pub(crate) fn json(rows: &[Histogram]) -> Vec<Value> {
    let row = |row: &Histogram| {
        let (from, to) = row.sizes();
        json!({
            "operation": row.op.name(),
            "bytes_from": from,
            "bytes_to": to,
            "count": row.count(),
            "mean_ns": row.mean(),
            "p50_ns": row.quantile(0.5),
            "p90_ns": row.quantile(0.9),
            "p99_ns": row.quantile(0.99),
            "p999_ns": row.quantile(0.999),
            "max_ns": row.longest,
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use selvedge_kit::telemetry::TimedOp;
    use selvedge_kit::telemetry::latency::LatencyRecorder;

    use super::*;

    #[test]
    fn the_latency_table_fits_80_columns_and_shows_all_sizes() {
        let latency = LatencyRecorder::open("shm", "1:0:0").unwrap();
        for len in [0, 8, 600, 5000, 600 << 10, usize::MAX] {
            for time in [100, 2000, 33_000_000_000] {
                latency.record(TimedOp::TaggedReceive, len, time);
            }
        }
        let lines = lines(&latency.histograms());
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let sizes: Vec<_> = lines[1..]
            .iter()
            .map(|line| line.split_whitespace().nth(1).unwrap())
            .collect();
        assert_eq!(sizes, ["0", "8-15", "512-1023", "4-8K", "512K..", "64M.."]);
        let bars = lines[1].split_whitespace().nth(9).unwrap();
        assert!(
            bars.starts_with('█') && lines[1].ends_with('█'),
            "{}",
            lines[1]
        );
        assert!(lines[1].contains(" 33.0s "), "{}", lines[1]);
    }
}
