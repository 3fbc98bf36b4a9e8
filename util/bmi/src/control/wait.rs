//! Waits for events. A thread polls for a while, then parks in ppoll(2) on the descriptors of all
//! methods and on its eventfd of [`Parking`](super::parking::Parking).

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::EventFd;
use nix::sys::time::TimeSpec;

use super::bmi::Bmi;
use crate::method::TryWait;
use crate::{Code, Result};

/// How a waiting thread polls for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollMode {
    /// Progresses the methods first.
    Progress,
    /// Only reads events that were reported. A method whose `try_wait` allowed parking must not be
    /// progressed.
    ReadOnly,
}

impl Bmi {
    /// Ends all waits without a result, those of later calls included.
    pub(crate) fn end_waits(&self) {
        self.parking.is_ending.store(true, Ordering::Relaxed);
        self.parking.wake_all();
    }

    /// Polls until there is a result or `idle` has passed.
    #[inline]
    pub(super) fn wait_for<T>(
        &self,
        idle: Duration,
        mut poll: impl FnMut(PollMode) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let result = poll(PollMode::Progress)?;
        if result.is_some() || idle.is_zero() {
            return Ok(result);
        }
        self.wait_slow_path(idle, &mut poll)
    }

    #[cold]
    fn wait_slow_path<T>(
        &self,
        idle: Duration,
        poll: &mut dyn FnMut(PollMode) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let start = Instant::now();
        // An `idle` time beyond the clock's range has no deadline.
        let deadline = start.checked_add(idle);
        let mut spinning = self.parking.spin.begin(start);
        while self.parking.spin.should_continue(&mut spinning) && start.elapsed() < idle {
            if let Some(result) = poll(PollMode::Progress)? {
                self.parking.spin.succeeded(&spinning);
                return Ok(Some(result));
            }
        }
        self.park_until(deadline, poll)
    }

    fn park_until<T>(
        &self,
        deadline: Option<Instant>,
        poll: &mut dyn FnMut(PollMode) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        loop {
            let start = Instant::now();
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(start));
            if remaining.is_some_and(|remaining| remaining.is_zero()) {
                return Ok(None);
            }
            let guard = self.parking.arm()?;
            if self.parking.is_ending.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if let Some(limit) = self.park_limit() {
                if let Some(result) = poll(PollMode::ReadOnly)? {
                    return Ok(Some(result));
                }
                self.park(
                    &guard.wake_fd,
                    [remaining, limit].into_iter().flatten().min(),
                )?;
                self.parking.spin.parked_for(start.elapsed());
            }
            drop(guard);
            if let Some(result) = poll(PollMode::Progress)? {
                return Ok(Some(result));
            }
        }
    }

    /// Queries all methods. Returns `None` when a method is ready, otherwise the longest time that
    /// a thread may park; the inner `None` is an unlimited time.
    fn park_limit(&self) -> Option<Option<Duration>> {
        let mut limit = None;
        for instance in self.method_instances() {
            match instance.lock(&self.parking).try_wait() {
                TryWait::Ready => return None,
                TryWait::Park => {}
                TryWait::ParkAtMost(bound) => {
                    limit = Some(limit.map_or(bound, |limit: Duration| limit.min(bound)));
                }
            }
        }
        Some(limit)
    }

    /// Parks until a method's descriptor is ready, the thread is signalled, or the time has passed.
    fn park(&self, wake_fd: &EventFd, time: Option<Duration>) -> Result {
        let methods = self
            .method_instances()
            .filter_map(|instance| instance.wait_fd());
        let mut fds: Vec<_> = std::iter::once(wake_fd.as_fd())
            .chain(methods)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match ppoll(&mut fds, time.map(TimeSpec::from), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(Code::of_system(errno as i32)),
        }
    }
}
