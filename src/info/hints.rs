//! What the application asks for.

#![expect(unsafe_code, reason = "the promise that removes locks")]

use super::{Info, Threading};

/// What the application asks of [`crate::Registry::getinfo`]: an [`Info`] whose unset fields mean
/// "any".
#[derive(Clone, Debug, Default)]
pub struct Hints {
    info: Info,
}

impl Hints {
    /// Asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Promises how the application's threads use what is opened from the results; providers
    /// leave out the locks that the promise makes needless.
    ///
    /// # Safety
    /// For as long as an object lives that was opened from a result of these hints:
    /// - [`Threading::Domain`]: no two threads use objects of one domain at the same time;
    /// - [`Threading::Completion`]: no two threads use one completion queue, counter, or endpoint
    ///   bound to it, at the same time;
    /// - [`Threading::Fid`] and [`Threading::Endpoint`]: no two threads use one object at the same
    ///   time.
    ///
    /// [`Threading::Safe`] and [`Threading::Unspec`] promise nothing.
    #[must_use]
    pub unsafe fn promise_threading(mut self, threading: Threading) -> Self {
        self.info.domain_attr.threading = threading;
        self.info.origin.threading = match threading {
            Threading::Unspec => Threading::Safe,
            promised => promised,
        };
        self
    }

    /// What is asked for.
    pub fn info(&self) -> &Info {
        &self.info
    }
}
