//! `perf`: the number and the time of calls by name, and the time of operations by kind and size.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use selvedge::Result;
use selvedge_kit::telemetry::latency::Histogram;

use super::call::{Call, Next};
use super::output::Output;
use crate::recorder::Totals;

#[derive(Debug)]
pub(crate) struct Perf {
    output: Output,
    calls: Mutex<BTreeMap<&'static str, CallTotals>>,
    times: Arc<Totals>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CallTotals {
    calls: u64,
    errors: u64,
    time: Duration,
    longest: Duration,
}

impl Perf {
    pub(crate) fn new(output: Output, times: &Arc<Totals>) -> Self {
        Self {
            output,
            times: Arc::clone(times),
            calls: Mutex::default(),
        }
    }

    pub(crate) fn intercept(&self, call: &mut Call<'_>, next: Next<'_>) -> Result {
        let begin = Instant::now();
        let result = next(call);
        let took = begin.elapsed();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let totals = calls.entry(call.name).or_default();
        totals.calls += 1;
        totals.errors += u64::from(result.is_err());
        totals.time += took;
        totals.longest = totals.longest.max(took);
        result
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        let calls = self.calls.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut table = format!(
            "ofi_hook_perf: process {}\n{:<20} {:>10} {:>8} {:>12} {:>10} {:>10}\n",
            std::process::id(),
            "call",
            "calls",
            "errors",
            "all us",
            "mean ns",
            "max ns"
        );
        for (name, totals) in calls.iter() {
            let mean = totals.time.as_nanos() / u128::from(totals.calls.max(1));
            // Writing to a string does not fail.
            let _ = writeln!(
                table,
                "{name:<20} {:>10} {:>8} {:>12.1} {mean:>10} {:>10}",
                totals.calls,
                totals.errors,
                totals.time.as_secs_f64() * 1e6,
                totals.longest.as_nanos()
            );
        }
        table += &operation_table(&self.times.histograms());
        self.output.write(&table);
    }
}

/// The times of operations as a table; empty without operations.
fn operation_table(histograms: &[Histogram]) -> String {
    let mut table = String::new();
    if histograms.is_empty() {
        return table;
    }
    let columns = ["count", "mean ns", "50%", "90%", "99%", "99.9%", "max ns"];
    let _ = write!(table, "{:<10} {:>14}", "operation", "bytes");
    for column in columns {
        let _ = write!(table, " {column:>9}");
    }
    table.push('\n');
    for histogram in histograms {
        let bytes = match histogram.sizes() {
            (from, to) if from == to => from.to_string(),
            (from, u64::MAX) => format!("{from}-"),
            (from, to) => format!("{from}-{to}"),
        };
        let _ = write!(table, "{:<10} {bytes:>14}", histogram.op.name());
        let [p50, p90, p99, p999] =
            [0.5, 0.9, 0.99, 0.999].map(|fraction| histogram.quantile(fraction));
        for number in [
            histogram.count(),
            histogram.mean(),
            p50,
            p90,
            p99,
            p999,
            histogram.longest,
        ] {
            let _ = write!(table, " {number:>9}");
        }
        table.push('\n');
    }
    table
}
