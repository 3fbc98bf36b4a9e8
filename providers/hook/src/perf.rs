//! `perf`: how often each call was made, and how long it took.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use selvedge::Result;

use crate::call::{Call, Next};
use crate::out::Out;

#[derive(Debug)]
pub(crate) struct Perf {
    out: Out,
    calls: Mutex<BTreeMap<&'static str, Sum>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    calls: u64,
    errors: u64,
    time: Duration,
    longest: Duration,
}

impl Perf {
    pub(crate) fn new(out: Out) -> Self {
        Self {
            out,
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
        self.out.write(&table);
    }
}
