//! Triggered operations and deferred work, fi_trigger(3): work that waits at counters until their
//! thresholds are reached.
//!
//! Counters count under the locks of endpoints, where no operation can be posted. Work that a
//! counter releases becomes *ready*, and [`ReadyWork`] carries it out. The domain's queues and
//! counters drive [`ReadyWork`] like an endpoint. A domain makes it for the first work.

mod actions;
mod counter_work;
mod deferred_ops;
mod item;
mod ready_work;

use std::sync::Arc;

use selvedge::trigger::{Action, CompletionTarget};
use selvedge::{Endpoint, Errno, Error, Op, OpFlags};

use crate::domain::identity::DomainId;

pub(crate) use actions::action;
pub(crate) use counter_work::CounterWork;
pub use deferred_ops::{DeferredOps, HasDeferredOps};
pub(crate) use item::WorkItem;
pub(crate) use ready_work::ReadyWork;

/// Flags of operations that do not complete exactly once, or whose memory is not in use until the
/// completion.
const UNSUPPORTED: OpFlags = OpFlags::MULTI_RECV
    .union(OpFlags::PEEK)
    .union(OpFlags::CLAIM)
    .union(OpFlags::DISCARD)
    .union(OpFlags::INJECT)
    .union(OpFlags::DEFAULT)
    .union(OpFlags::LEND)
    .union(OpFlags::DEFERRED);

/// Checks that an operation can be queued as work.
///
/// # Errors
/// [`Errno::NoSys`], with the unsupported flag or kind of operation.
pub(crate) fn check(action: &Action<'_>, title: &dyn std::fmt::Debug) -> Result<(), Error> {
    let Action::Post {
        op, flags, done, ..
    } = action
    else {
        return Ok(());
    };
    let unsupported = match done {
        CompletionTarget::Endpoint => UNSUPPORTED - OpFlags::DEFAULT,
        CompletionTarget::Counter(_) => UNSUPPORTED,
    };
    let (kind, unsupported) = (op_name(op), *flags & unsupported);
    let message = match op {
        Op::Inject { .. }
        | Op::TaggedInject { .. }
        | Op::InjectWrite { .. }
        | Op::InjectAtomic { .. }
        | Op::Collective(_) => format!("{title:?}: {kind} cannot be queued as deferred work"),
        _ if unsupported.is_empty() => return Ok(()),
        _ => format!("{title:?}: {kind} with {unsupported:?} cannot be queued as deferred work"),
    };
    Err(Error::new(Errno::NoSys, message))
}

fn op_name(op: &Op<'_>) -> &'static str {
    match op {
        Op::Send(_) => "a send",
        Op::Recv(_) => "a receive",
        Op::Inject { .. } => "an injected message",
        Op::TaggedSend(_) => "a tagged send",
        Op::TaggedRecv(_) => "a tagged receive",
        Op::TaggedInject { .. } => "an injected tagged message",
        Op::Read(_) => "a read",
        Op::Write(_) => "a write",
        Op::InjectWrite { .. } => "an injected write",
        Op::Atomic(_) => "an atomic",
        Op::FetchAtomic(..) => "a fetching atomic",
        Op::CompareAtomic(..) => "a comparing atomic",
        Op::InjectAtomic { .. } => "an injected atomic",
        Op::Collective(_) => "a collective",
    }
}

/// The deferred operations of an endpoint of `domain`, for work that is posted to it; `E` is the
/// provider's endpoint type.
///
/// # Errors
/// [`Errno::Inval`] for an endpoint of another domain.
pub(crate) fn resolve_deferred_ops<'a, E: Endpoint + HasDeferredOps>(
    domain: &DomainId,
    ep: &'a Arc<dyn Endpoint>,
) -> Result<&'a Arc<DeferredOps>, Error> {
    let any: &dyn std::any::Any = &**ep;
    let deferred_ops = any.downcast_ref::<E>().map(HasDeferredOps::deferred_ops).ok_or_else(|| {
        let message = format!(
            "{domain:?}: the endpoint of deferred work is of another provider, or has collectives \
             ({ep:?}); name one of this domain"
        );
        Error::new(Errno::Inval, message)
    })?;
    domain.check("endpoint of deferred work", deferred_ops.domain())?;
    Ok(deferred_ops)
}
