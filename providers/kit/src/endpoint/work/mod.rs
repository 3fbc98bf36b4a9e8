//! Triggered operations and deferred work, fi_trigger(3): work that waits at counters until their
//! thresholds are reached.
//!
//! Counters count under the locks of endpoints, where no operation can be posted. Work that a
//! counter releases becomes *ready*, and [`ReadyWork`] carries it out. The domain's queues and
//! counters drive [`ReadyWork`] like an endpoint. A domain makes it for the first work.

mod counter_work;
mod deferred_ops;
mod item;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use selvedge::trigger::{Action, CompletionTarget, WorkId};
use selvedge::{Endpoint, Errno, Error, Op, OpFlags, Result};

use crate::cq::{Progress, Sink};
use crate::domain::identity::DomainId;
use crate::wait::ArmOutcome;

pub(crate) use counter_work::CounterWork;
pub use deferred_ops::{DeferredOps, HasDeferredOps};
pub(crate) use item::WorkItem;

use item::FireOutcome;

/// The work of a domain that is ready to be carried out.
#[derive(Debug)]
pub(crate) struct ReadyWork {
    ready: Mutex<VecDeque<WorkItem>>,
    /// Whether there is ready work. A thread that adds work writes it and then loads `is_armed`; a
    /// thread that is about to park writes `is_armed` and then loads this word. Both are `SeqCst`,
    /// so one of the two sees the other's store.
    is_ready: AtomicBool,
    is_armed: AtomicBool,
    /// Held while work is carried out, so that the work is carried out in the order in which it
    /// became ready.
    running: Mutex<()>,
    wakeup: EventFd,
    next_id: AtomicU64,
}

impl ReadyWork {
    /// Makes an empty list of ready work.
    ///
    /// # Errors
    /// The system's error, if no descriptor is left.
    pub(crate) fn open() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wakeup = EventFd::from_value_and_flags(0, flags).map_err(|cause| {
            let message = "deferred work: an eventfd to wake parked threads";
            Error::new(Errno::from_raw(cause as i32), message).because(cause)
        })?;
        Ok(Self {
            ready: Mutex::default(),
            is_ready: AtomicBool::new(false),
            is_armed: AtomicBool::new(false),
            running: Mutex::new(()),
            wakeup,
            next_id: AtomicU64::new(1),
        })
    }

    pub(crate) fn next_id(&self) -> WorkId {
        WorkId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds ready work; the next progress carries it out.
    pub(crate) fn add(&self, items: impl IntoIterator<Item = WorkItem>) {
        let mut ready = self.lock_ready();
        ready.extend(items);
        self.is_ready.store(!ready.is_empty(), Ordering::SeqCst);
        drop(ready);
        if self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst) {
            // The write fails when the count has reached 2^64 - 1, and then the descriptor is
            // ready.
            let _ = self.wakeup.write(1);
        }
    }

    /// Removes the work that `is_selected` accepts. After the return, none of the removed work is
    /// being carried out.
    pub(crate) fn remove(&self, is_selected: impl Fn(&WorkItem) -> bool) -> usize {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ready = self.lock_ready();
        let previous_len = ready.len();
        ready.retain(|item| !is_selected(item));
        previous_len - ready.len()
    }

    /// Carries out the ready work, unless another thread does.
    pub(crate) fn run(&self) -> usize {
        if !self.is_ready.load(Ordering::SeqCst) {
            return 0;
        }
        let Ok(_running) = self.running.try_lock() else {
            return 0;
        };
        let (mut fired, mut blocked) = (0, VecDeque::new());
        while let Some(item) = self.pop() {
            let is_behind = blocked.iter().any(|other| item.is_behind(other));
            match is_behind || item.fire() == FireOutcome::Retry {
                true => blocked.push_back(item),
                false => fired += 1,
            }
        }
        self.put_back(blocked);
        fired
    }

    fn pop(&self) -> Option<WorkItem> {
        self.lock_ready().pop_front()
    }

    /// Puts back the work that has to be retried. Until this call [`Self::is_ready`] stays set: a
    /// thread that is about to park meanwhile must not miss the work.
    fn put_back(&self, mut blocked: VecDeque<WorkItem>) {
        let mut ready = self.lock_ready();
        blocked.append(&mut ready);
        *ready = blocked;
        self.is_ready.store(!ready.is_empty(), Ordering::SeqCst);
    }

    fn lock_ready(&self) -> MutexGuard<'_, VecDeque<WorkItem>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time that a thread parks for while work waits for room, or another thread carries work out.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

impl Progress for ReadyWork {
    fn progress(&self, _budget: usize, _sink: &mut Sink<'_>) -> usize {
        self.run()
    }

    fn arm(&self, _epoch: &mut u64) -> ArmOutcome {
        // The read fails when no thread has written.
        let _ = self.wakeup.read();
        self.is_armed.store(true, Ordering::SeqCst);
        if !self.is_ready.load(Ordering::SeqCst) {
            return ArmOutcome::UntilWoken;
        }
        match self.run() {
            0 => ArmOutcome::AtMost(RETRY_INTERVAL),
            _ => ArmOutcome::Progressed,
        }
    }

    fn woken(&self) {
        self.run();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakeup.as_fd())
    }
}

/// Flags of operations that do not complete exactly once, or whose memory is not in use until the
/// completion.
const UNSUPPORTED: OpFlags = OpFlags::MULTI_RECV
    .union(OpFlags::PEEK)
    .union(OpFlags::CLAIM)
    .union(OpFlags::DISCARD)
    .union(OpFlags::INJECT)
    .union(OpFlags::DEFAULT)
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
