//! Nothing waits for ever: what takes too long is reported by name.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// The variable that sets how long anything may take, in seconds.
pub(crate) const VARIABLE: &str = "FABTESTS_PATIENCE";

/// How long anything may take; far more than it does, on a crowded machine too.
pub(crate) fn limit() -> Duration {
    let set = std::env::var(VARIABLE).ok();
    let seconds = set.and_then(|text| text.parse().ok()).unwrap_or(30.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(30))
}

/// Tries again and again until there is something.
///
/// # Errors
/// What did not come in time; those of the attempts.
pub(crate) fn until<T>(
    what: &str,
    mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let limit = limit();
    let mut attempts = 0_u32;
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        let waited = start.elapsed();
        ensure!(
            waited < limit,
            "{what} does not come within {} s",
            limit.as_secs_f64()
        );
        attempts += 1;
        if waited > LONG {
            // Whoever is waited for may want this core for something else.
            std::thread::sleep(NAP);
        } else if attempts > SPINS {
            std::thread::yield_now();
        }
    }
}

/// Attempts before others may run: a peer's core is faster than the scheduler, if it has one.
const SPINS: u32 = 50;
/// Nothing that is fast takes so long.
const LONG: Duration = Duration::from_millis(50);
const NAP: Duration = Duration::from_micros(200);
