//! `Shell`: the outer part of every endpoint: the lock around its state, the queues and counters
//! that drive it, and its closing. A provider implements [`EndpointState`]; the operations are its
//! own part.

#![expect(unsafe_code, reason = "passes the application's promise to the lock")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use nix::sys::epoll::Epoll;
use selvedge::{Bindings, Error, LateBindings, Result};

use crate::cq::{Progress, Sink};
use crate::domain::Base;
use crate::eq::Queue;
use crate::fork_guard::ForkGuarded;
use crate::lock::{Guard, Lock};
use crate::srx::{Member, Posted, Receiver, Shared};
use crate::wait::{ArmOutcome, Waiters};
use crate::{DeferredOps, Drivers, Ep, RemoteCounters};

/// The state of an endpoint behind its lock, as far as its shell is concerned.
pub trait EndpointState: AsMut<Ep> + Send + 'static {
    /// Makes progress; takes about `budget` messages at most ([`Progress::progress`]).
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize;

    /// Whether the calling thread may park ([`Progress::arm`]).
    fn arm(&mut self, epoch: &mut u64) -> ArmOutcome;

    /// Makes progress after a wake-up ([`Progress::woken`]).
    fn woken(&mut self);

    /// Closes the endpoint: ends every operation, without completions. No queue or counter drives
    /// it any more.
    fn close(&mut self);
}

/// The state of an endpoint behind its lock: the part that queues and counters drive.
pub struct Core<S> {
    /// The state, which children that are forked from this process cannot access.
    pub state: ForkGuarded<S>,
    /// The set that becomes ready with events while a thread is parked.
    epoll: Arc<Epoll>,
    waiters: Arc<Waiters>,
}

/// The core of an endpoint, its drivers, and its closing when the shell is dropped.
pub struct Shell<S: EndpointState> {
    core: Arc<Core<S>>,
    /// The core, as queues and counters hold it.
    progress: Arc<dyn Progress>,
    drivers: Drivers,
    deferred_ops: Arc<DeferredOps>,
}

impl<S: EndpointState> Progress for Core<S> {
    #[inline]
    fn progress(&self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.state
            .lock_for_pass()
            .map_or(0, |mut state| state.progress(budget, sink))
    }

    fn arm(&self, epoch: &mut u64) -> ArmOutcome {
        // A child that is forked from this process never gets here: its queues do not wait.
        let state = self.state.lock();
        state.map_or(ArmOutcome::UntilWoken, |mut state| state.arm(epoch))
    }

    fn woken(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.woken();
        }
    }

    fn waiters(&self) -> Option<&Waiters> {
        Some(&self.waiters)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }
}

impl<S: EndpointState + Receiver> Member for Core<S> {
    fn match_shared(&self) {
        if let Ok(mut state) = self.state.lock() {
            Receiver::match_shared(&mut *state);
        }
    }

    fn cancelled(&self, posted: Posted) {
        if let Ok(state) = self.state.lock() {
            state.ep().rx_cancelled(posted);
        }
    }
}

impl<S: EndpointState> Shell<S> {
    /// Puts the lock around the state of an endpoint with these bindings. `eq` drives it, too, if
    /// it still exists, and `epoll` becomes ready with events while a thread is parked. Nothing
    /// drives the endpoint before [`Self::attach`].
    pub fn new(
        base: &Base,
        bind: &Bindings,
        eq: &Weak<Queue>,
        mut state: S,
        epoll: Arc<Epoll>,
    ) -> Self {
        let ep = state.as_mut();
        let drivers = base.drivers(ep).with_eq(eq);
        let (waiters, deferred_ops) = (Arc::clone(ep.waiters()), Arc::clone(ep.deferred_ops()));
        // SAFETY: `Base` derives the mode from the promise of `Hints::promise_threading`, which covers
        // every object of the domain; the lock is taken at the top of each call and never below.
        let state = unsafe { Lock::with_mode(base.mode_of(bind), state) };
        let core = Arc::new(Core {
            state: ForkGuarded::new(state),
            epoll,
            waiters,
        });
        Self {
            progress: Arc::clone(&core) as Arc<dyn Progress>,
            core,
            drivers,
            deferred_ops,
        }
    }

    /// Attaches the endpoint to all its queues, counters and threads, until the shell is dropped.
    ///
    /// # Errors
    /// Those of [`Drivers::attach`].
    pub fn attach(&self) -> Result<(), Error> {
        self.drivers.attach(&self.progress)
    }

    /// Adds the endpoint to a shared receive context.
    pub fn join(&self, srx: &Shared)
    where
        S: Receiver,
    {
        let member: Arc<dyn Member> = Arc::clone(&self.core) as Arc<dyn Member>;
        srx.join(Arc::downgrade(&member));
    }

    /// Locks the state for one call of the application.
    ///
    /// # Errors
    /// Those of [`ForkGuarded::lock`].
    #[inline]
    pub fn lock(&self) -> Result<Guard<'_, S>> {
        self.core.state.lock()
    }

    /// The state behind its lock.
    pub const fn core(&self) -> &Arc<Core<S>> {
        &self.core
    }

    /// The core, as queues and counters hold it.
    pub const fn progress(&self) -> &Arc<dyn Progress> {
        &self.progress
    }

    /// The deferred operations of the endpoint.
    pub const fn deferred_ops(&self) -> &Arc<DeferredOps> {
        &self.deferred_ops
    }

    /// Binds the open endpoint to more queues and counters.
    ///
    /// # Errors
    /// Those of [`Drivers::bind_late`].
    pub fn bind_late(&self, late: &LateBindings, remote: RemoteCounters) -> Result<(), Error> {
        let (progress, state) = (&self.progress, &self.core.state);
        self.drivers.bind_late(late, remote, progress, state)
    }
}

impl<S> fmt::Debug for Core<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl<S: EndpointState> fmt::Debug for Shell<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl<S: EndpointState> Drop for Shell<S> {
    fn drop(&mut self) {
        self.drivers
            .close(&self.progress, &self.core.state, S::close);
    }
}
