//! Rate-limited warnings, for events that a peer can cause any number of times.
//!
//! A process logs a limited number of warnings per second ([`set_rate`]). The first warning after a
//! suppression follows a line with the number of suppressed warnings.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The default number of warnings per second: enough to diagnose one misbehaving peer or a few.
pub const DEFAULT_RATE: usize = 20;

/// Warnings per second.
static RATE: AtomicUsize = AtomicUsize::new(DEFAULT_RATE);

static LIMITER: Mutex<Limiter> = Mutex::new(Limiter::new());

/// Sets how many warnings the process logs per second.
pub fn set_rate(rate: usize) {
    RATE.store(rate, Ordering::Relaxed);
}

/// Logs a warning, unless the rate is exceeded.
#[cold]
pub fn warn_limited(target: &str, message: fmt::Arguments<'_>) {
    // The call does not wait for the lock: its holder may be a thread that fork(2) left behind.
    let admitted = LIMITER.try_lock().map_or(Some(0), |mut limiter| {
        limiter.admit(Instant::now(), RATE.load(Ordering::Relaxed))
    });
    match admitted {
        None => {}
        Some(0) => log::warn!(target: target, "{message}"),
        Some(suppressed) => {
            log::warn!(target: target, "{suppressed} warnings like the last ones were suppressed");
            log::warn!(target: target, "{message}");
        }
    }
}

/// The warnings of the present interval.
#[derive(Debug)]
struct Limiter {
    interval_start: Option<Instant>,
    logged: usize,
    suppressed: usize,
}

const INTERVAL: Duration = Duration::from_secs(1);

impl Limiter {
    const fn new() -> Self {
        Self {
            interval_start: None,
            logged: 0,
            suppressed: 0,
        }
    }

    /// Decides whether one more warning may be logged now. Returns the number of warnings that were
    /// suppressed since the last one; `None` to suppress this one as well.
    fn admit(&mut self, now: Instant, rate: usize) -> Option<usize> {
        if self
            .interval_start
            .is_none_or(|interval_start| now.duration_since(interval_start) >= INTERVAL)
        {
            self.interval_start = Some(now);
            self.logged = 0;
        }
        if self.logged >= rate {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_a_limited_number_of_warnings_and_the_next_one_reports_the_suppressed() {
        let (start, mut limiter) = (Instant::now(), Limiter::new());
        let admitted = [0; 3].map(|_| limiter.admit(start, 2));
        assert_eq!(admitted, [Some(0), Some(0), None]);
        assert_eq!(limiter.admit(start + INTERVAL / 2, 2), None);
        let later = start + INTERVAL;
        assert_eq!(limiter.admit(later, 2), Some(2));
        assert_eq!(limiter.admit(later, 2), Some(0));
        assert_eq!(limiter.admit(later, 2), None);
    }

    #[test]
    fn no_warning_is_logged_at_a_rate_of_zero() {
        assert_eq!(Limiter::new().admit(Instant::now(), 0), None);
    }
}
