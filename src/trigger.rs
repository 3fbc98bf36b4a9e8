//! Triggered operations and deferred work: fi_trigger(3).
//!
//! Work waits at a counter until that has reached a number, successes and errors together, and is
//! carried out by the progress of the domain's queues and counters then. What C writes as a post with
//! `FI_TRIGGER` is work here, too: work that completes at its endpoint.

#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as of the man page's structures"
)]

use std::sync::Arc;

use crate::{Counter, Endpoint, Op, OpFlags};

/// Something that is done when a counter has reached a number (`struct fi_deferred_work`).
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// What it waits at.
    pub cntr: &'a Arc<dyn Counter>,
    /// The number of successes and errors, together, from which on it is done.
    pub threshold: u64,
    /// What is done.
    pub action: Action<'a>,
}

/// What is done when the counter has reached the number (`enum fi_op_type`).
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// Something is posted to an endpoint. The work ends with the endpoint.
    Post {
        /// Which one.
        ep: &'a Arc<dyn Endpoint>,
        /// What is posted. Its lists are copied; the bytes that they name are not touched before.
        op: Op<'a>,
        /// Its flags.
        flags: OpFlags,
        /// Who is told when it is done.
        done: CompletionTarget<'a>,
    },
    /// The successes of a counter are set (`FI_OP_CNTR_SET`).
    Set(&'a Arc<dyn Counter>, u64),
    /// The successes of a counter are added to (`FI_OP_CNTR_ADD`).
    Add(&'a Arc<dyn Counter>, u64),
}

/// Who is told when an operation is done.
#[derive(Clone, Copy, Debug)]
pub enum CompletionTarget<'a> {
    /// The queues and counters of its endpoint, as of any other post: an operation that is triggered.
    Endpoint,
    /// This counter, by one, and nobody else; with [`OpFlags::COMPLETION`] the endpoint's queue, too:
    /// work that is deferred.
    Counter(Option<&'a Arc<dyn Counter>>),
}

/// Names work that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);
