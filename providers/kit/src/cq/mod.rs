//! The ready-made completion queue, and what it drives.

mod ring;
mod sink;
mod store;

use std::fmt;

pub use ring::CqRing;
pub use sink::Sink;

/// What a completion queue drives: an endpoint's inner part.
pub trait Progress: fmt::Debug + Send + Sync {
    /// Moves what can move without waiting: takes up to about `budget` messages and finishes
    /// operations. Says how many it handled.
    ///
    /// It may push completions, those of the queue that drives it through `sink`, but must neither
    /// read that queue nor detach from it.
    fn progress(&self, budget: usize, sink: &mut Sink<'_>) -> usize;
}
