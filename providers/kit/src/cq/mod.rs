//! The ready-made completion queue, and what it drives.

mod ring;
mod store;

use std::fmt;

pub use ring::CqRing;

/// What a completion queue drives: an endpoint's inner part.
pub trait Progress: fmt::Debug + Send + Sync {
    /// Moves what can move without waiting: takes up to about `budget` messages and finishes
    /// operations. Says how many it handled.
    ///
    /// It may push completions, but must neither read the queue that drives it nor detach from it.
    fn progress(&self, budget: usize) -> usize;
}
