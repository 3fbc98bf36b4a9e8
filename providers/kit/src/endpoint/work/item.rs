//! An item of deferred work: an action that waits for a threshold.

use std::fmt;
use std::sync::Weak;

use selvedge::Endpoint;
use selvedge::trigger::WorkId;

/// An item of queued work, which keeps no object alive: an action on an object that was closed is
/// dropped.
#[derive(Debug)]
pub(crate) struct WorkItem {
    pub(crate) id: WorkId,
    pub(crate) threshold: u64,
    /// The address of the counter at which the work waits, as the counter's identity.
    pub(crate) cntr_addr: usize,
    pub(crate) action: Box<dyn Action>,
}

/// The action of an item of work.
pub(crate) trait Action: fmt::Debug + Send + Sync {
    /// Carries out the work. Takes no lock but those of the endpoint and counters that the work
    /// uses.
    fn fire(&self) -> FireOutcome;

    /// The endpoint to which the action posts.
    fn endpoint(&self) -> Option<&Weak<dyn Endpoint>> {
        None
    }
}

/// The outcome of an attempt to carry work out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FireOutcome {
    /// The work was carried out, has failed, or its object is closed.
    Done,
    /// The endpoint had no room; try again.
    Retry,
}

impl WorkItem {
    /// Whether the work has to wait behind `other`, which waits for room at the same endpoint.
    pub(super) fn is_behind(&self, other: &Self) -> bool {
        let endpoints = (self.action.endpoint(), other.action.endpoint());
        matches!(endpoints, (Some(ep), Some(other)) if Weak::ptr_eq(ep, other))
    }
}
