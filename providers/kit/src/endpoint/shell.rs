//! `Shell`: the outer part of an endpoint, the same for every provider: the lock around the
//! endpoint's state, the queues and counters that drive the endpoint, and its closing. A provider
//! implements [`EndpointState`] and the endpoint's operations.

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

/// The methods of a provider's endpoint state that its [`Shell`] calls. The shell holds the lock of
/// the state during each call.
pub trait EndpointState: AsMut<Ep> + Send + 'static {
    /// Makes progress: takes up to about `budget` messages, and returns how many it handled
    /// ([`Progress::progress`]).
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize;

    /// Arms the endpoint, and returns whether the calling thread may park ([`Progress::arm`]).
    fn arm(&mut self, epoch: &mut u64) -> ArmOutcome;

    /// Makes progress after a wake-up ([`Progress::woken`]).
    fn woken(&mut self);

    /// Closes the endpoint: ends every operation, without completions. The shell calls this after
    /// it has detached the endpoint from all queues and counters.
    fn close(&mut self);
}

/// `Core` is the inner part of an endpoint, which queues and counters drive: the endpoint's state
/// behind its lock.
pub struct Core<S> {
    /// The state. A child that is forked from this process cannot access it.
    pub state: ForkGuarded<S>,
    /// The epoll set, which becomes ready with events while a thread is parked.
    epoll: Arc<Epoll>,
    waiters: Arc<Waiters>,
}

/// `Shell` is the outer part of an endpoint: its [`Core`], and the queues and counters that drive
/// the core. Dropping the shell closes the endpoint.
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
        // A forked child never gets here, because its queues do not wait.
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
    /// Makes the shell of an endpoint with these bindings, and puts a lock around `state`. `epoll`
    /// becomes ready with events while a thread is parked.
    ///
    /// Nothing drives the endpoint before [`Self::attach`]. After it, the queues and counters of
    /// `bind` do, and `eq` if it still exists.
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
        // SAFETY: `Base` derives the mode from the promise of `Hints::promise_threading`, which
        // covers every object of the domain. Each call takes the lock once, at its top.
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

    /// Attaches the endpoint to its queues, counters and progress threads, which drive it until the
    /// shell is dropped.
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

    /// Returns the inner part of the endpoint: its state behind its lock.
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
