//! Nothing in a campaign waits for ever: what takes too long is reported by name.

use std::time::{Duration, Instant};

use anyhow::ensure;

/// How long anything may take; far more than it does, on a crowded machine too.
const LIMIT: Duration = Duration::from_secs(60);

/// The end of waiting for one thing.
#[derive(Debug)]
pub(crate) struct Patience {
    what: &'static str,
    until: Instant,
}

impl Patience {
    /// Begins to wait for `what`.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            until: Instant::now() + LIMIT,
        }
    }

    /// Something has come about: the time begins anew.
    pub(crate) fn renew(&mut self) {
        self.until = Instant::now() + LIMIT;
    }

    /// Lets others run, and ends when it takes too long.
    ///
    /// # Errors
    /// What did not come about.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        std::thread::yield_now();
        let is_over = Instant::now() > self.until;
        ensure!(!is_over, "still waiting for {} after {LIMIT:?}", self.what);
        Ok(())
    }
}
