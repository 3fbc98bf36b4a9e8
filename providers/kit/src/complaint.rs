//! Complaints: warnings that a peer can cause, of which no peer can cause too many.
//!
//! A process says so many of them in a second ([`set_rate`]), and then how many it has kept to
//! itself.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The rate if nobody says otherwise: enough to see what is wrong with a peer or a
/// few.
pub const DEFAULT_RATE: usize = 20;

/// Complaints in a second.
static RATE: AtomicUsize = AtomicUsize::new(DEFAULT_RATE);

static LATELY: Mutex<Lately> = Mutex::new(Lately::new());

/// Sets how many complaints the process may make in a second.
pub fn set_rate(rate: usize) {
    RATE.store(rate, Ordering::Relaxed);
}

/// Complains, unless there were too many complaints lately.
#[cold]
pub fn complain(target: &str, what: fmt::Arguments<'_>) {
    // Who holds the lock may have been left behind by fork(2): nobody is waited for.
    let verdict = LATELY.try_lock().map_or(Some(0), |mut lately| {
        lately.admit(Instant::now(), RATE.load(Ordering::Relaxed))
    });
    match verdict {
        None => {}
        Some(0) => log::warn!(target: target, "{what}"),
        Some(kept) => {
            log::warn!(target: target, "{kept} warnings like the last ones were not shown");
            log::warn!(target: target, "{what}");
        }
    }
}

/// The complaints of the last second.
#[derive(Debug)]
struct Lately {
    since: Option<Instant>,
    said: usize,
    kept: usize,
}

const WINDOW: Duration = Duration::from_secs(1);

impl Lately {
    const fn new() -> Self {
        Self {
            since: None,
            said: 0,
            kept: 0,
        }
    }

    /// Whether one more may be said now; how many were not since the last one that was.
    fn admit(&mut self, now: Instant, rate: usize) -> Option<usize> {
        if self
            .since
            .is_none_or(|since| now.duration_since(since) >= WINDOW)
        {
            self.since = Some(now);
            self.said = 0;
        }
        if self.said >= rate {
            self.kept += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_complaints_and_the_next_one_says_how_many_were_kept() {
        let (start, mut lately) = (Instant::now(), Lately::new());
        let answers = [0; 3].map(|_| lately.admit(start, 2));
        assert_eq!(answers, [Some(0), Some(0), None]);
        assert_eq!(lately.admit(start + WINDOW / 2, 2), None);
        let later = start + WINDOW;
        assert_eq!(lately.admit(later, 2), Some(2));
        assert_eq!(lately.admit(later, 2), Some(0));
        assert_eq!(lately.admit(later, 2), None);
    }

    #[test]
    fn none_are_said_at_a_rate_of_none() {
        assert_eq!(Lately::new().admit(Instant::now(), 0), None);
    }
}
