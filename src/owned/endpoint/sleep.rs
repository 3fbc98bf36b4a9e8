//! Threads that sleep until operations of an endpoint are done, one of them at its queue.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{self, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::future::AsyncEndpoint;
use crate::owned::lock;
use crate::{CompletionQueue, Errno, Result};

/// Where they meet: one sleeps at the queue, and wakes the others when it has read something.
#[derive(Debug)]
pub(super) struct Dormitory {
    cq: Arc<dyn CompletionQueue>,
    /// Whether somebody is at the queue.
    is_led: Mutex<bool>,
    changed: Condvar,
}

/// What wakes one thread that runs a future.
struct Alarm {
    dormitory: Arc<Dormitory>,
    has_rung: AtomicBool,
}

impl Dormitory {
    pub(super) fn new(cq: Arc<dyn CompletionQueue>) -> Self {
        Self {
            cq,
            is_led: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Sleeps at the queue, or until whoever does has woken; `is_up` says that there is no need to.
    /// Whether this thread was the one at the queue, which has not read what is there.
    fn sleep(&self, timeout: Option<Duration>, is_up: impl Fn() -> bool) -> Result<bool> {
        let mut is_led = lock(&self.is_led);
        if is_up() {
            return Ok(false);
        }
        if *is_led {
            let longest = timeout.unwrap_or(LONGEST);
            let woken = self.changed.wait_timeout(is_led, longest);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
            return Ok(false);
        }
        *is_led = true;
        drop(is_led);
        let slept = self.cq.wait(&mut [], timeout);
        *lock(&self.is_led) = false;
        self.changed.notify_all();
        match slept {
            Ok(_) | Err(Errno::Again | Errno::Avail) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Has all who sleep look again.
    fn rouse(&self) {
        // Whoever has found no need to wake up under this lock sleeps by now.
        drop(lock(&self.is_led));
        self.changed.notify_all();
        // Without a wait object nobody sleeps.
        let _ = self.cq.signal();
    }
}

/// How long a thread sleeps without a look where no time is given: it is woken before.
const LONGEST: Duration = Duration::from_secs(3600);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.dormitory.rouse();
    }
}

impl AsyncEndpoint {
    /// Sleeps until an operation is done, or for so long, and does what [`Self::progress`] does. It
    /// may end early, with 0. Of several threads, one sleeps at the queue.
    ///
    /// # Errors
    /// As [`Self::progress`]; [`Errno::NoSys`] for an endpoint that was not opened by
    /// [`Self::open_waiting`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<usize> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            let has_led = self.sleep(left, || false)?;
            let met = self.progress()?;
            if met > 0 || has_led || left == Some(Duration::ZERO) {
                return Ok(met);
            }
        }
    }

    fn sleep(&self, timeout: Option<Duration>, is_up: impl Fn() -> bool) -> Result<bool> {
        let slept = self.dormitory().sleep(timeout, is_up);
        slept.inspect_err(|_| self.wake_all())
    }

    /// Runs a future to its end in this thread, which sleeps while nothing is to be done. Other
    /// threads may run theirs meanwhile.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output> {
        let mut future = pin!(future);
        let alarm = Arc::new(Alarm {
            dormitory: Arc::clone(self.dormitory()),
            has_rung: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&alarm));
        let mut cx = task::Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return Ok(output);
            }
            while !alarm.has_rung.swap(false, Ordering::AcqRel) {
                let has_rung = || alarm.has_rung.load(Ordering::Acquire);
                self.sleep(None, has_rung)?;
                self.progress()?;
            }
        }
    }
}
