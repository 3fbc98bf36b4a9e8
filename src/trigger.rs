//! Triggered operations and deferred work: fi_trigger(3).
//!
//! Work is queued until a counter reaches a threshold, and is then carried out by the progress of the
//! domain's queues and counters. The value of the counter is the sum of its successes and errors. A post
//! with `FI_TRIGGER` in C is also work here: its completion target is the endpoint.

#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as of the man page's structures"
)]

use std::sync::Arc;

use crate::{Counter, Endpoint, Op, OpFlags};

/// An action that is carried out when a counter reaches a threshold (`struct fi_deferred_work`).
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The counter.
    pub cntr: &'a Arc<dyn Counter>,
    /// The threshold of the sum of successes and errors.
    pub threshold: u64,
    /// The action.
    pub action: Action<'a>,
}

/// The action of work (`enum fi_op_type`).
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// Posts an operation to an endpoint. Closing the endpoint cancels the work.
    Post {
        /// The endpoint.
        ep: &'a Arc<dyn Endpoint>,
        /// The operation. Its lists are copied; the memory that they name is not accessed before the
        /// post.
        op: Op<'a>,
        /// The flags of the operation.
        flags: OpFlags,
        /// Where the completion is reported.
        done: CompletionTarget<'a>,
    },
    /// Sets the successes of a counter (`FI_OP_CNTR_SET`).
    Set(&'a Arc<dyn Counter>, u64),
    /// Adds to the successes of a counter (`FI_OP_CNTR_ADD`).
    Add(&'a Arc<dyn Counter>, u64),
}

/// The destination of the completion of a triggered or deferred operation.
#[derive(Clone, Copy, Debug)]
pub enum CompletionTarget<'a> {
    /// The queues and counters of the endpoint, as for any other post: a triggered operation.
    Endpoint,
    /// This counter, which is incremented by 1; with [`OpFlags::COMPLETION`] the endpoint's queue, too:
    /// deferred work.
    Counter(Option<&'a Arc<dyn Counter>>),
}

/// Identifies queued work, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);
