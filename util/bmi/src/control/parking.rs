//! Waits for events. A thread polls for a while, then parks in ppoll(2) on the descriptors of all
//! methods and on an eventfd that other threads signal when they report events.
//!
//! A thread increments the count of parked threads before its last poll. A thread that reported
//! events reads the count when it releases the method's lock. Therefore either the parking thread
//! sees the events or it is signalled.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use selvedge_kit::wait::{SPIN, Spin};

use crate::method::TryWait;
use crate::{Bmi, Code, Result};

/// The parked threads of an instance.
#[derive(Debug)]
pub(super) struct Parking {
    count: AtomicUsize,
    wake_fds: Mutex<Vec<Arc<EventFd>>>,
    /// The instance is being dropped: no thread parks any more.
    is_ending: AtomicBool,
    /// How long threads poll before they park.
    spin: Spin,
}

impl Parking {
    pub(super) fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            wake_fds: Mutex::default(),
            is_ending: AtomicBool::new(false),
            spin: Spin::new(SPIN),
        }
    }

    /// Wakes all parked threads if there are any.
    #[inline]
    pub(super) fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.signal_all();
        }
    }

    #[cold]
    fn signal_all(&self) {
        for wake_fd in &*self.wake_fds() {
            // The write fails only if the counter is at its maximum. The thread is signalled
            // already then.
            let _ = wake_fd.write(1);
        }
    }

    fn wake_fds(&self) -> MutexGuard<'_, Vec<Arc<EventFd>>> {
        self.wake_fds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(&self) -> Result<ParkGuard<'_>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake_fd = WAKE_FD.with(|fd| {
            fd.get_or_init(|| EventFd::from_value_and_flags(0, flags).map(Arc::new))
                .clone()
        });
        let wake_fd = wake_fd.map_err(|errno| Code::of_system(errno as i32))?;
        self.wake_fds().push(Arc::clone(&wake_fd));
        self.count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence of `Bmi::wake_all`.
        fence(Ordering::SeqCst);
        Ok(ParkGuard {
            parking: self,
            wake_fd,
        })
    }
}

thread_local! {
    static WAKE_FD: std::cell::OnceCell<Result<Arc<EventFd>, Errno>> =
        const { std::cell::OnceCell::new() };
}

/// Guard of a thread that is parked or about to park.
#[derive(Debug)]
struct ParkGuard<'a> {
    parking: &'a Parking,
    wake_fd: Arc<EventFd>,
}

impl Drop for ParkGuard<'_> {
    fn drop(&mut self) {
        self.parking.count.fetch_sub(1, Ordering::SeqCst);
        let mut wake_fds = self.parking.wake_fds();
        if let Some(index) = wake_fds
            .iter()
            .position(|wake_fd| Arc::ptr_eq(wake_fd, &self.wake_fd))
        {
            wake_fds.swap_remove(index);
        }
        drop(wake_fds);
        // Drains signals that were meant for this park.
        let _ = self.wake_fd.read();
    }
}

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
    /// Wakes all threads that are parked, after a change that was made without a method's lock.
    #[cold]
    pub(super) fn wake_all(&self) {
        // A parking thread increments the count, reads the changed state, and parks. By the two
        // fences either this thread sees the count or that thread sees the change.
        fence(Ordering::SeqCst);
        self.parking.wake();
    }

    /// Ends all waits without a result, those of later calls included.
    pub(crate) fn end_waits(&self) {
        self.parking.is_ending.store(true, Ordering::Relaxed);
        self.wake_all();
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
