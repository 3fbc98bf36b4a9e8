//! Timeouts: a wait that takes too long fails, and the error names the awaited event.

use std::env;
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// The environment variable that sets the timeout of a wait, in seconds.
pub const VARIABLE: &str = "FABTESTS_TIMEOUT";
/// The earlier name of [`VARIABLE`], which applies if that variable is not set.
const ALIAS: &str = "FABTESTS_PATIENCE";
/// The timeout if neither variable is set.
const DEFAULT: Duration = Duration::from_secs(30);

/// Returns the timeout of a wait. Successful waits end long before this timeout, even on an
/// overloaded machine.
///
/// # Panics
/// When the environment variable is not a number of seconds.
pub fn limit() -> Duration {
    try_limit().unwrap_or_else(|error| panic!("{error}"))
}

fn try_limit() -> anyhow::Result<Duration> {
    let mut names = [VARIABLE, ALIAS].into_iter();
    let value = names.find_map(|name| Some((name, env::var_os(name)?)));
    value.map_or(Ok(DEFAULT), |(name, value)| parse(name, &value))
}

/// Parses the value of the variable `name`.
fn parse(name: &str, value: &OsStr) -> anyhow::Result<Duration> {
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    timeout.with_context(|| format!("{name}={value:?}: expected a number of seconds, such as 30"))
}

/// Calls `attempt` until it returns a value.
///
/// # Errors
/// Those of `attempt`; a timeout, which names `event`; an invalid value of [`VARIABLE`].
pub fn until<T>(
    event: &str,
    mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    let limit = try_limit()?;
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
    ///
    /// # Panics
    /// As [`limit`].
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
/// Time between two attempts of a wait that sleeps.
const SLEEP: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_timeout_is_an_error_with_the_variable_and_the_value() {
        let timeout = parse(VARIABLE, OsStr::new("2.5")).unwrap();
        assert_eq!(timeout, Duration::from_millis(2500));
        for value in ["", "soon", "30s", "-1", "inf", "NaN"] {
            let error = parse(ALIAS, OsStr::new(value)).unwrap_err().to_string();
            let start = format!("FABTESTS_PATIENCE={value:?}: expected a number of seconds");
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
