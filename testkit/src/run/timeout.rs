//! Timeouts: a wait that takes too long fails with the name of what it waited for.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// The variable that sets how long anything may take, in seconds.
pub const VARIABLE: &str = "FABTESTS_PATIENCE";

/// How long anything may take; far more than it does, on a crowded machine too.
pub fn limit() -> Duration {
    let set = std::env::var(VARIABLE).ok();
    let seconds = set.and_then(|text| text.parse().ok()).unwrap_or(30.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(30))
}

/// Tries again and again until there is something.
///
/// # Errors
/// What did not come in time; those of the attempts.
pub fn until<T>(
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

/// The end of a wait whose loop the caller writes. It takes twice [`limit`], because the loop waits
/// for several processes.
#[derive(Debug)]
pub struct Timeout {
    what: &'static str,
    limit: Duration,
    until: Instant,
}

impl Timeout {
    /// Begins to wait for `what`.
    pub fn new(what: &'static str) -> Self {
        let limit = 2 * limit();
        let until = Instant::now() + limit;
        Self { what, limit, until }
    }

    /// Something has arrived: the time begins anew.
    pub fn renew(&mut self) {
        self.until = Instant::now() + self.limit;
    }

    /// Yields the processor, and fails when the time is over.
    ///
    /// # Errors
    /// What did not arrive.
    pub fn check(&mut self) -> anyhow::Result<()> {
        std::thread::yield_now();
        let (what, limit) = (self.what, self.limit);
        let is_over = Instant::now() > self.until;
        ensure!(!is_over, "still waiting for {what} after {limit:?}");
        Ok(())
    }
}

/// Attempts before others may run: a peer's core is faster than the scheduler, if it has one.
const SPINS: u32 = 50;
/// Nothing that is fast takes so long.
const LONG: Duration = Duration::from_millis(50);
const NAP: Duration = Duration::from_micros(200);
