//! `Shell`: what every endpoint has around its state: the lock, the queues and counters that drive it,
//! and its end. A provider says with [`EndpointState`] how its endpoints move; what they do is theirs.

#![expect(unsafe_code, reason = "passes the application's promise to the lock")]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use nix::sys::epoll::Epoll;
use selvedge::{Bindings, Error, LateBindings, Result};

use crate::birth::Native;
use crate::cq::{Progress, Sink};
use crate::domain::Base;
use crate::eq::Queue;
use crate::lock::{Guard, Lock};
use crate::srx::{Member, Posted, Receiver, Shared};
use crate::wait::{Rest, Waiters};
use crate::{Drivers, Ep, Ledger, RemoteCounters};

/// What the lock of an endpoint protects, as far as its shell is concerned.
pub trait EndpointState: AsMut<Ep> + Send + 'static {
    /// Moves what can move; takes about `budget` messages at most ([`Progress::progress`]).
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize;

    /// Whether the thread that asks may park ([`Progress::rest`]).
    fn rest(&mut self, seen: &mut u64) -> Rest;

    /// A thread that was parked was woken, and will ask again before it parks.
    fn woken(&mut self);

    /// The endpoint is closed: ends everything, without completions. Nothing drives it any more.
    fn close(&mut self);
}

/// The state of an endpoint behind its lock: what queues and counters drive.
pub struct Core<S> {
    /// Out of reach for children that are forked from this process.
    pub state: Native<S>,
    /// What becomes ready with news while a thread is parked.
    epoll: Arc<Epoll>,
    waiters: Arc<Waiters>,
}

/// The core of an endpoint, what drives it, and its end when the shell is dropped.
pub struct Shell<S: EndpointState> {
    core: Arc<Core<S>>,
    /// The core, as queues and counters know it.
    progress: Arc<dyn Progress>,
    drivers: Drivers,
    ledger: Arc<Ledger>,
}

impl<S: EndpointState> Progress for Core<S> {
    #[inline]
    fn progress(&self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.state
            .lock_for_pass()
            .map_or(0, |mut state| state.progress(budget, sink))
    }

    fn rest(&self, seen: &mut u64) -> Rest {
        // A child that is forked from this process never gets here: its queues do not wait.
        let state = self.state.lock();
        state.map_or(Rest::UntilWoken, |mut state| state.rest(seen))
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
    fn meet_shared(&self) {
        if let Ok(mut state) = self.state.lock() {
            Receiver::meet_shared(&mut *state);
        }
    }

    fn cancelled(&self, posted: Posted) {
        if let Ok(state) = self.state.lock() {
            state.ep().rx_cancelled(posted);
        }
    }
}

impl<S: EndpointState> Shell<S> {
    /// Puts the lock around the state of an endpoint that is bound so. `eq` drives it, too, if it is
    /// still there, and `epoll` becomes ready with news while a thread is parked. Nothing drives the
    /// endpoint before [`Self::attach`].
    pub fn new(
        base: &Base,
        bind: &Bindings,
        eq: &Weak<Queue>,
        mut state: S,
        epoll: Arc<Epoll>,
    ) -> Self {
        let ep = state.as_mut();
        let drivers = base.drivers(ep).with_eq(eq);
        let (waiters, ledger) = (Arc::clone(ep.waiters()), Arc::clone(ep.ledger()));
        // SAFETY: `Base` derives the mode from the promise of `Hints::promise_threading`, which covers
        // every object of the domain; the lock is taken at the top of each call and never below.
        let state = unsafe { Lock::with_mode(base.mode_of(bind), state) };
        let core = Arc::new(Core {
            state: Native::new(state),
            epoll,
            waiters,
        });
        Self {
            progress: Arc::clone(&core) as Arc<dyn Progress>,
            core,
            drivers,
            ledger,
        }
    }

    /// Has everything that the endpoint is bound to drive it, until the shell is dropped.
    ///
    /// # Errors
    /// Those of [`Drivers::attach`].
    pub fn attach(&self) -> Result<(), Error> {
        self.drivers.attach(&self.progress)
    }

    /// Has shared receives meet the messages of the endpoint.
    pub fn join(&self, srx: &Shared)
    where
        S: Receiver,
    {
        let member: Arc<dyn Member> = Arc::clone(&self.core) as Arc<dyn Member>;
        srx.join(Arc::downgrade(&member));
    }

    /// The state, for one call of the application.
    ///
    /// # Errors
    /// Those of [`Native::lock`].
    #[inline]
    pub fn lock(&self) -> Result<Guard<'_, S>> {
        self.core.state.lock()
    }

    /// The state behind its lock.
    pub const fn core(&self) -> &Arc<Core<S>> {
        &self.core
    }

    /// The core, as queues and counters know it.
    pub const fn progress(&self) -> &Arc<dyn Progress> {
        &self.progress
    }

    /// What the endpoint owes for deferred work.
    pub const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
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
        self.drivers.end(&self.progress, &self.core.state, S::close);
    }
}
