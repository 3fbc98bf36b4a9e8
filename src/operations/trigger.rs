//! Triggered operations and deferred work: fi_trigger(3).
//!
//! Work is queued until a counter reaches a threshold. The progress of the domain's queues and
//! counters then executes the work. The value of the counter is the sum of its successes and
//! errors. In C, a post with `FI_TRIGGER` is also work, whose completion target is the endpoint.

#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use std::sync::Arc;

use crate::{Counter, Endpoint, Op, OpFlags};

/// An action that is executed when a counter reaches a threshold (`struct fi_deferred_work`).
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
        /// The operation. Its lists are copied. The memory in the lists is not accessed before the
        /// post.
        op: Op<'a>,
        /// The flags of the operation.
        flags: OpFlags,
        /// The destination of the completion.
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
    /// The queues and counters of the endpoint, as for any other post. This is the target of a
    /// triggered operation.
    Endpoint,
    /// This counter, which is incremented by 1, and with [`OpFlags::COMPLETION`] also the
    /// endpoint's queue. This is the target of deferred work.
    Counter(Option<&'a Arc<dyn Counter>>),
}

/// The identity of queued work, with which the work is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);
