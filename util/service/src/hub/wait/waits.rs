//! Waits for a hub: threads that block, and the drivers of futures.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Error;
use crate::hub::{Access, Hub};

/// A waiting thread reads the clock once in this number of polls, which take microseconds. A result
/// that comes before costs no clock.
const CLOCK_TURNS: u32 = 64;

impl Hub {
    /// Drives the hub until `ready` returns something, or until the deadline: `None`.
    ///
    /// # Errors
    /// [`Error::Transport`] when the thread cannot wait.
    #[inline]
    pub(crate) fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Access<'_>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        loop {
            if let Some(_leader) = self.waiting.lead() {
                return self.lead(deadline, ready);
            }
            let follower = self.waiting.follow();
            if let Some(result) = self.with(&mut ready) {
                return Ok(Some(result));
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            follower.wait(left);
            // A leader that is stopped, or a driver that does not run, delays no other thread.
            self.poll();
            self.sweep();
        }
    }

    /// Polls and blocks until `ready` returns something.
    fn lead<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Access<'_>) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let (mut spin_until, mut turns) = (None, 0_u32);
        let mut turn = self.turn();
        loop {
            if let Some(result) = ready(&mut turn.access()) {
                turn.release();
                return Ok(Some(result));
            }
            let is_active = turn.poll();
            if is_active {
                self.waiting.notify();
                spin_until = None;
            }
            turns = turns.wrapping_add(1);
            if (is_active || !self.spin.is_zero()) && turns % CLOCK_TURNS != 0 {
                turn = turn.yield_turn();
                continue;
            }
            let now = Instant::now();
            if deadline.is_some_and(|at| at <= now) {
                let result = ready(&mut turn.access());
                turn.release();
                return Ok(result);
            }
            let has_changed = turn.sweep(now) || is_active;
            if has_changed || now < *spin_until.get_or_insert(now + self.spin) {
                turn = turn.yield_turn();
                continue;
            }
            let settled = turn.settle();
            turn.release();
            if settled? {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                self.parker.block(left)?;
                self.take_events();
                spin_until = None;
            } else {
                self.waiting.notify();
            }
            turn = self.turn();
        }
    }

    /// Polls until there is nothing to do. Returns whether a thread may then block on the
    /// descriptor.
    ///
    /// # Errors
    /// [`Error::Transport`] when nothing can be waited for.
    pub(crate) fn settle(&self) -> Result<bool, Error> {
        let mut turn = self.turn();
        let _ = turn.sweep(Instant::now());
        let settled = turn.settle();
        turn.release();
        if settled == Ok(false) {
            self.waiting.notify();
        }
        settled
    }

    /// The descriptor that is readable when [`Self::settle`] has something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.parker.fd()
    }

    /// Takes the events of the timer and of signals, then does what is to be done.
    ///
    /// # Errors
    /// As [`Self::settle`].
    pub(crate) fn drive(&self) -> Result<bool, Error> {
        self.take_events();
        self.settle()
    }

    /// Takes the events of the timer and of signals.
    pub(crate) fn take_events(&self) {
        self.parker.take_signal();
        let mut turn = self.turn();
        turn.take_expiration();
        turn.release();
    }

    /// How long a thread polls before it blocks.
    pub(crate) fn spin_time(&self) -> Duration {
        self.spin
    }

    /// Ends the current wait of the leader or the driver, or the next one.
    pub(crate) fn signal(&self) {
        self.parker.signal();
        self.waiting.notify();
    }

    /// Adds a driver.
    pub(crate) fn add_driver(&self) {
        self.waiting.add_driver();
        self.signal();
    }

    /// Removes a driver.
    pub(crate) fn remove_driver(&self) {
        self.waiting.remove_driver();
        self.signal();
    }

    /// Whether a task or thread drives the futures of this hub. Under tokio, a task is started that
    /// does.
    pub(crate) fn is_driven(self: &Arc<Self>) -> bool {
        #[cfg(feature = "tokio")]
        self.start_task();
        self.waiting.is_driven()
    }

    /// Starts the task that drives the hub, unless it runs, or a thread or driver takes its place.
    #[cfg(feature = "tokio")]
    fn start_task(self: &Arc<Self>) {
        let mut task = self
            .task
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if !self.waiting.is_driven() {
            *task = super::tokio_driver::start(self);
        }
    }
}

#[cfg(feature = "tokio")]
impl super::tokio_driver::Drive for Hub {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }

    fn drive(&self) -> Result<bool, Error> {
        self.drive()
    }

    fn is_readable(&self) -> bool {
        self.parker.is_readable()
    }

    fn add_driver(&self) {
        self.add_driver();
    }

    fn remove_driver(&self) {
        self.remove_driver();
    }
}
