//! `perf`: how often each call was made, and how long it took; how long operations took, by kind and
//! size.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use selvedge::Result;
use selvedge_kit::telemetry::latency::Histogram;

use crate::call::{Call, Next};
use crate::out::Out;
use crate::watch::Totals;

#[derive(Debug)]
pub(crate) struct Perf {
    out: Out,
    calls: Mutex<BTreeMap<&'static str, Sum>>,
    times: Arc<Totals>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    errors: u64,
    time: Duration,
    longest: Duration,
}

impl Perf {
    pub(crate) fn new(out: Out, times: &Arc<Totals>) -> Self {
        Self {
            out,
            times: Arc::clone(times),
            calls: Mutex::default(),
        }
    }

    pub(crate) fn around(&self, call: &mut Call<'_>, next: Next<'_>) -> Result {
        let begin = Instant::now();
        let answer = next(call);
        let took = begin.elapsed();
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = calls.entry(call.name).or_default();
        sum.calls += 1;
        sum.errors += u64::from(answer.is_err());
        sum.time += took;
        sum.longest = sum.longest.max(took);
        answer
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
        for (name, sum) in calls.iter() {
            let mean = sum.time.as_nanos() / u128::from(sum.calls.max(1));
            // Writing to a string does not fail.
            let _ = writeln!(
                table,
                "{name:<20} {:>10} {:>8} {:>12.1} {mean:>10} {:>10}",
                sum.calls,
                sum.errors,
                sum.time.as_secs_f64() * 1e6,
                sum.longest.as_nanos()
            );
        }
        table += &operations(&self.times.rows());
        self.out.write(&table);
    }
}

/// The times of operations as a table; nothing without any.
fn operations(rows: &[Histogram]) -> String {
    let mut table = String::new();
    if rows.is_empty() {
        return table;
    }
    let columns = ["count", "mean ns", "50%", "90%", "99%", "99.9%", "max ns"];
    let _ = write!(table, "{:<10} {:>14}", "operation", "bytes");
    for column in columns {
        let _ = write!(table, " {column:>9}");
    }
    table.push('\n');
    for row in rows {
        let bytes = match row.sizes() {
            (from, to) if from == to => from.to_string(),
            (from, u64::MAX) => format!("{from}-"),
            (from, to) => format!("{from}-{to}"),
        };
        let _ = write!(table, "{:<10} {bytes:>14}", row.op.name());
        let [half, most, nearly, all] = [0.5, 0.9, 0.99, 0.999].map(|part| row.quantile(part));
        for number in [
            row.count(),
            row.mean(),
            half,
            most,
            nearly,
            all,
            row.longest,
        ] {
            let _ = write!(table, " {number:>9}");
        }
        table.push('\n');
    }
    table
}
