//! `Lock`: the lock of a hub, and `Turn`: one hold of it.
//!
//! A thread that polls holds the lock over many polls, so that a poll costs no atomic exchange. It
//! gives way to threads that wait for the lock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Waker;
use std::thread;
use std::time::Instant;

use selvedge::owned::Completions;

use super::state::State;
use super::wait::Parker;
use crate::Error;
use crate::port::Port;

/// How often a thread that gives way yields its processor until the waiting threads have the lock.
const YIELDS: u32 = 8;

/// The lock of a hub.
#[derive(Debug)]
pub(super) struct Lock {
    locked: Mutex<Locked>,
    /// The number of threads that wait for the lock.
    contenders: AtomicU32,
}

#[derive(Debug)]
struct Locked {
    state: State,
    /// Their endpoints are used under this lock alone: see [`Port::open`].
    ports: Vec<Port>,
    done: Completions,
    /// The time for which the timer is set.
    timer: Option<Instant>,
}

impl Lock {
    pub(super) fn new(state: State, ports: Vec<Port>) -> Self {
        let locked = Locked {
            state,
            ports,
            done: State::completions(),
            timer: None,
        };
        Self {
            locked: Mutex::new(locked),
            contenders: AtomicU32::new(0),
        }
    }

    /// Takes the lock. The timer of `parker` is set when it is released.
    #[inline]
    pub(super) fn take<'a>(&'a self, parker: &'a Parker) -> Turn<'a> {
        let locked = match self.locked.try_lock() {
            Ok(locked) => locked,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait(),
        };
        let lock = self;
        Turn {
            lock,
            parker,
            locked,
        }
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, Locked> {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let locked = self.locked.lock().unwrap_or_else(PoisonError::into_inner);
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        locked
    }

    fn is_contended(&self) -> bool {
        self.contenders.load(Ordering::Relaxed) > 0
    }
}

/// One hold of a hub's lock, which [`Self::release`] ends.
#[derive(Debug)]
#[must_use = "only `release` wakes the tasks that the changes concern"]
pub(super) struct Turn<'a> {
    lock: &'a Lock,
    parker: &'a Parker,
    locked: MutexGuard<'a, Locked>,
}

/// The connections and ports of a hub, under its lock.
#[derive(Debug)]
pub(crate) struct Access<'a> {
    pub(super) state: &'a mut State,
    pub(super) ports: &'a [Port],
}

impl Turn<'_> {
    #[inline]
    pub(super) fn access(&mut self) -> Access<'_> {
        let Locked { state, ports, .. } = &mut *self.locked;
        Access { state, ports }
    }

    /// Drives the ports once. Returns whether there was anything to do.
    #[inline]
    pub(super) fn poll(&mut self) -> bool {
        let Locked {
            state, ports, done, ..
        } = &mut *self.locked;
        state.poll(ports, done)
    }

    /// Does what is to be done at this time. Returns whether there was anything.
    pub(super) fn sweep(&mut self, now: Instant) -> bool {
        let Access { state, ports } = self.access();
        state.sweep(ports, now)
    }

    /// Polls. Returns whether there was nothing to do, so that a thread may block on the parker's
    /// descriptor after the release.
    ///
    /// # Errors
    /// [`Error::Transport`] when nothing can be waited for.
    pub(super) fn settle(&mut self) -> Result<bool, Error> {
        if self.poll() {
            return Ok(false);
        }
        for port in &self.locked.ports {
            if !port.try_wait()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the event of the timer, if it is due. The timer is set again at the release.
    pub(super) fn take_expiration(&mut self) {
        let is_due = self.locked.timer.is_some_and(|at| at <= Instant::now());
        if is_due && self.parker.take_expiration() {
            self.locked.timer = None;
        }
    }

    /// Releases the lock if a task is to be woken, or a thread waits for the lock, and takes it
    /// again.
    #[inline]
    pub(super) fn yield_turn(self) -> Self {
        if self.locked.state.woken.is_empty() && !self.lock.is_contended() {
            return self;
        }
        self.yield_contended()
    }

    #[cold]
    fn yield_contended(self) -> Self {
        let (lock, parker) = (self.lock, self.parker);
        self.release();
        // A thread that takes the lock again at once could take it before those that wait.
        for _ in 0..YIELDS {
            if !lock.is_contended() {
                break;
            }
            thread::yield_now();
        }
        lock.take(parker)
    }

    /// Releases the lock: sets the timer, and then wakes the tasks that the changes concern.
    #[inline]
    pub(super) fn release(mut self) {
        self.set_timer();
        let woken = std::mem::take(&mut self.locked.state.woken);
        drop(self.locked);
        woken.into_iter().for_each(Waker::wake);
    }

    #[inline]
    fn set_timer(&mut self) {
        let is_earlier = match (self.locked.state.next_sweep, self.locked.timer) {
            (Some(next), Some(timer)) => next < timer,
            (next, _) => next.is_some(),
        };
        if is_earlier && let Some(next) = self.locked.state.next_sweep {
            self.locked.timer = Some(next);
            self.parker.set_timer(next);
        }
    }
}
