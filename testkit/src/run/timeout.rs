//! Timeouts: a wait that takes too long fails, and the error names the awaited event.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// The environment variable that sets the timeout of a wait, in seconds.
pub const VARIABLE: &str = "FABTESTS_PATIENCE";

/// The timeout of a wait. Successful waits end long before it, even on an overloaded machine.
pub fn limit() -> Duration {
    let value = std::env::var(VARIABLE).ok();
    let seconds = value.and_then(|text| text.parse().ok()).unwrap_or(30.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(30))
}

/// Calls `attempt` until it returns a value.
///
/// # Errors
/// Those of `attempt`; a timeout, which names `event`.
pub fn until<T>(
    event: &str,
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
            "{event} did not happen within {} s",
            limit.as_secs_f64()
        );
        attempts += 1;
        if waited > SPIN_TIME {
            // The awaited process may need this core.
            std::thread::sleep(SLEEP);
        } else if attempts > SPINS {
            std::thread::yield_now();
        }
    }
}

/// The timeout of a wait for which the caller writes the loop. It is twice as long as [`limit`],
/// because such loops wait for several processes.
#[derive(Debug)]
pub struct Timeout {
    event: &'static str,
    limit: Duration,
    deadline: Instant,
}

impl Timeout {
    /// Starts the timeout of a wait for `event`.
    pub fn new(event: &'static str) -> Self {
        let limit = 2 * limit();
        let deadline = Instant::now() + limit;
        Self {
            event,
            limit,
            deadline,
        }
    }

    /// Restarts the timeout, after one of several awaited events.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + self.limit;
    }

    /// Yields the processor, and fails if the timeout has expired.
    ///
    /// # Errors
    /// A timeout, which names the awaited event.
    pub fn check(&mut self) -> anyhow::Result<()> {
        std::thread::yield_now();
        let (event, limit) = (self.event, self.limit);
        let has_expired = Instant::now() > self.deadline;
        ensure!(!has_expired, "still waiting for {event} after {limit:?}");
        Ok(())
    }
}

/// Number of attempts before the first yield: a peer on another core usually responds sooner than a
/// yield returns.
const SPINS: u32 = 50;
/// Time from the start of the wait after which it sleeps between attempts.
const SPIN_TIME: Duration = Duration::from_millis(50);
const SLEEP: Duration = Duration::from_micros(200);
