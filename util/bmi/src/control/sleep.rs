//! How threads wait: they look for a moment, and sleep in the kernel then, on the descriptors of
//! all methods and on a bell that other threads ring when they find what is waited for.
//!
//! A thread counts itself as a sleeper before it looks for the last time. Whoever has news looks at
//! the count when it gives the method's lock back; so either the sleeper sees the news, or it is
//! rung for.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use selvedge_kit::wait::{SPIN, Spin};

use crate::method::Rest;
use crate::{Bmi, Code, Result};

/// Who sleeps.
#[derive(Debug)]
pub(super) struct Sleepers {
    count: AtomicUsize,
    bells: Mutex<Vec<Arc<EventFd>>>,
    /// The instance ends: no thread parks any more.
    is_ending: AtomicBool,
    /// How long threads look before.
    spin: Spin,
}

impl Sleepers {
    pub(super) fn new() -> Self {
        Self {
            count: AtomicUsize::new(0),
            bells: Mutex::default(),
            is_ending: AtomicBool::new(false),
            spin: Spin::new(SPIN),
        }
    }

    /// There is news: all sleepers look again.
    #[inline]
    pub(super) fn wake(&self) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.ring();
        }
    }

    #[cold]
    fn ring(&self) {
        for bell in &*self.bells() {
            // A bell that cannot be rung any more has been rung often enough.
            let _ = bell.write(1);
        }
    }

    fn bells(&self) -> MutexGuard<'_, Vec<Arc<EventFd>>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lie_down(&self) -> Result<Bed<'_>> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let bell = BELL.with(|own| {
            own.get_or_init(|| EventFd::from_value_and_flags(0, flags).map(Arc::new))
                .clone()
        });
        let bell = bell.map_err(|errno| Code::of_system(errno as i32))?;
        self.bells().push(Arc::clone(&bell));
        self.count.fetch_add(1, Ordering::SeqCst);
        // Pairs with the fence of `Bmi::wake_all`.
        fence(Ordering::SeqCst);
        Ok(Bed {
            sleepers: self,
            bell,
        })
    }
}

thread_local! {
    static BELL: std::cell::OnceCell<Result<Arc<EventFd>, Errno>> =
        const { std::cell::OnceCell::new() };
}

/// One thread that sleeps or is about to.
#[derive(Debug)]
struct Bed<'a> {
    sleepers: &'a Sleepers,
    bell: Arc<EventFd>,
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        self.sleepers.count.fetch_sub(1, Ordering::SeqCst);
        let mut bells = self.sleepers.bells();
        if let Some(own) = bells.iter().position(|bell| Arc::ptr_eq(bell, &self.bell)) {
            bells.swap_remove(own);
        }
        drop(bells);
        // What rang meanwhile was for this sleep.
        let _ = self.bell.read();
    }
}

/// How a waiting thread looks for what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Moves what can move first.
    Drive,
    /// Sees what is there: a method that has said that a thread may sleep must not be driven.
    Glance,
}

impl Bmi {
    /// Wakes all threads that are parked, after a change that was made without a method's lock.
    #[cold]
    pub(super) fn wake_all(&self) {
        // A thread counts itself, looks at what was changed, and parks. By the two fences, this
        // thread sees the count, or that thread the change.
        fence(Ordering::SeqCst);
        self.sleepers.wake();
    }

    /// Ends all waits, and those that begin from now on, without anything found.
    pub(crate) fn end_waits(&self) {
        self.sleepers.is_ending.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Looks until there is something, or for as long as `idle`.
    #[inline]
    pub(super) fn wait_for<T>(
        &self,
        idle: Duration,
        mut look: impl FnMut(Look) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let found = look(Look::Drive)?;
        if found.is_some() || idle.is_zero() {
            return Ok(found);
        }
        self.wait_longer(idle, &mut look)
    }

    #[cold]
    fn wait_longer<T>(
        &self,
        idle: Duration,
        look: &mut dyn FnMut(Look) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let start = Instant::now();
        // A time beyond what clocks count to is no end.
        let deadline = start.checked_add(idle);
        let mut spinning = self.sleepers.spin.begin(start);
        while self.sleepers.spin.should_continue(&mut spinning) && start.elapsed() < idle {
            if let Some(found) = look(Look::Drive)? {
                self.sleepers.spin.succeeded(&spinning);
                return Ok(Some(found));
            }
        }
        self.sleep(deadline, look)
    }

    fn sleep<T>(
        &self,
        deadline: Option<Instant>,
        look: &mut dyn FnMut(Look) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        loop {
            let began = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(began));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let bed = self.sleepers.lie_down()?;
            if self.sleepers.is_ending.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if let Some(most) = self.may_sleep() {
                if let Some(found) = look(Look::Glance)? {
                    return Ok(Some(found));
                }
                self.doze(&bed.bell, [left, most].into_iter().flatten().min())?;
                self.sleepers.spin.parked_for(began.elapsed());
            }
            drop(bed);
            if let Some(found) = look(Look::Drive)? {
                return Ok(Some(found));
            }
        }
    }

    /// Asks all methods: `None` when one has news, otherwise for how long a thread may sleep.
    fn may_sleep(&self) -> Option<Option<Duration>> {
        let mut most = None;
        for station in self.stations() {
            match station.hold(&self.sleepers).rest() {
                Rest::News => return None,
                Rest::UntilWoken => {}
                Rest::AtMost(bound) => {
                    most = Some(most.map_or(bound, |most: Duration| most.min(bound)));
                }
            }
        }
        Some(most)
    }

    /// Sleeps until a descriptor of a method is ready, the bell rings, or the time is over.
    fn doze(&self, bell: &EventFd, time: Option<Duration>) -> Result {
        let methods = self.stations().filter_map(|station| station.wait_fd());
        let mut fds: Vec<_> = std::iter::once(bell.as_fd())
            .chain(methods)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        match ppoll(&mut fds, time.map(TimeSpec::from), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(Code::of_system(errno as i32)),
        }
    }
}
