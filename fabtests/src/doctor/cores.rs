//! Processors: their number, distance and frequency.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selvedge_bench::cpu::{Placement, allowed, pin};

use super::finding::{Finding, Severity, first_line};

/// Number of a cache line's round trips that are measured together.
const BATCH: u64 = 200;
/// Duration of the measurement.
const MEASURE_TIME: Duration = Duration::from_millis(300);
/// Above this many nanoseconds for a round trip, two cores have no common cache on any processor
/// that was measured.
const FAR_NS: f64 = 180.0;

/// Examines the distance of two cores: the round trip of a cache line.
pub(super) fn cores() -> Finding {
    const NAME: &str = "cores";
    let count = allowed().map_or(1, |cores| cores.len());
    let pair = Placement::choose().ok().and_then(Placement::cores);
    let Some([one, two]) = pair.filter(|_| count > 1) else {
        return Finding::new(
            NAME,
            Severity::Slow,
            "this process may use one core",
            "two processes take turns: a message costs a switch between them",
        )
        .advise("Give the job more cores (taskset, cpuset of the control group).");
    };
    let (near, far) = match measure_distance(one, two) {
        Ok(distance) => distance,
        Err(error) => {
            let found = format!("{count} cores; their distance cannot be measured: {error:#}");
            return Finding::new(
                NAME,
                Severity::Note,
                found,
                "processes cannot be pinned to cores",
            );
        }
    };
    let found = format!(
        "{count} cores; a cache line goes from core {one} to {two} and back in {near:.0} to \
         {far:.0} ns"
    );
    if far > 2.0 * near {
        return Finding::new(
            NAME,
            Severity::Note,
            found,
            "the distance changes while it is measured, and figures with it: compare only figures that were \
             measured in turns",
        )
        .advise("On a virtual machine, pin its processors to those of the host.");
    }
    let meaning = if near > FAR_NS {
        "these cores have no cache in common: small messages cost about that much, and \
                 cores that share one would be faster"
    } else {
        "these cores are near each other"
    };
    Finding::good(NAME, found, meaning)
}

/// Measures the round trip of a cache line. Returns the first and third quartile of the batches in
/// nanoseconds, so that a batch that the system interrupted does not count.
fn measure_distance(one: usize, two: usize) -> anyhow::Result<(f64, f64)> {
    let word = AtomicU64::new(0);
    const OVER: u64 = u64::MAX;
    let mut batches = thread::scope(|scope| {
        let echo = scope.spawn(|| -> anyhow::Result<()> {
            let pinned = pin(two);
            loop {
                match word.load(Ordering::Acquire) {
                    OVER => return pinned,
                    number if number % 2 == 1 => word.store(number + 1, Ordering::Release),
                    _ => std::hint::spin_loop(),
                }
            }
        });
        let measured = scope.spawn(|| {
            let batches = pin(one).map(|()| measure_batches(&word));
            word.store(OVER, Ordering::Release);
            batches
        });
        let batches = measured.join().expect("measuring does not panic");
        echo.join().expect("echoing does not panic")?;
        batches
    })?;
    batches.sort_by(f64::total_cmp);
    let quartile = |part: usize| batches[batches.len() * part / 4];
    Ok((quartile(1), quartile(3)))
}

fn measure_batches(word: &AtomicU64) -> Vec<f64> {
    let (start, mut batches, mut number) = (Instant::now(), Vec::new(), 1);
    while batches.is_empty() || start.elapsed() < MEASURE_TIME {
        let begin = Instant::now();
        for _ in 0..BATCH {
            word.store(number, Ordering::Release);
            while word.load(Ordering::Acquire) == number {}
            number += 2;
        }
        batches.push(begin.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    batches
}

/// Examines the governor of the frequency.
pub(super) fn frequency() -> Finding {
    const NAME: &str = "frequency";
    let governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    match governor.as_str() {
        "" => Finding::good(
            NAME,
            "the kernel does not manage it",
            "the host or the hardware decides",
        ),
        "performance" => Finding::good(NAME, "governor: performance", "cores do not slow down"),
        other => Finding::new(
            NAME,
            Severity::Note,
            format!("governor: {other}"),
            "the first messages after a pause may be slower",
        )
        .advise("For steady figures: cpupower frequency-set -g performance."),
    }
}
