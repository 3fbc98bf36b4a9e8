//! `Parking`: parks threads until operations of an endpoint complete. One of them waits at the
//! completion queue, the others at a condition variable.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{self, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::async_core::AsyncCore;
use crate::owned::lock;
use crate::{CompletionQueue, Errno, Result};

/// The parked threads of an endpoint. The thread that waits at the queue wakes the others when its
/// wait ends.
#[derive(Debug)]
pub(super) struct Parking {
    cq: Arc<dyn CompletionQueue>,
    /// Whether a thread waits at the queue.
    has_queue_waiter: Mutex<bool>,
    /// Where the other threads wait.
    unparked: Condvar,
}

/// Wakes a thread in [`Parking::run`].
struct ThreadWaker {
    parking: Arc<Parking>,
    is_woken: AtomicBool,
}

impl Parking {
    pub(super) fn new(cq: Arc<dyn CompletionQueue>) -> Self {
        Self {
            cq,
            has_queue_waiter: Mutex::new(false),
            unparked: Condvar::new(),
        }
    }

    /// Parks until an operation completes or `timeout` has passed, then drives progress. Returns
    /// the number of completions.
    pub(super) fn wait(&self, core: &AsyncCore, timeout: Option<Duration>) -> Result<usize> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let waited_at_queue = self.park_or_wake_all(core, left, || false)?;
            let count = core.progress()?;
            if count > 0 || waited_at_queue || left == Some(Duration::ZERO) {
                return Ok(count);
            }
        }
    }

    /// Runs a future to completion. The thread parks while the future is pending.
    pub(super) fn run<F: Future>(
        self: &Arc<Self>,
        core: &AsyncCore,
        future: F,
    ) -> Result<F::Output> {
        let mut future = pin!(future);
        let thread_waker = Arc::new(ThreadWaker {
            parking: Arc::clone(self),
            is_woken: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&thread_waker));
        let mut cx = task::Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return Ok(output);
            }
            while !thread_waker.is_woken.swap(false, Ordering::AcqRel) {
                let is_woken = || thread_waker.is_woken.load(Ordering::Acquire);
                self.park_or_wake_all(core, None, is_woken)?;
                core.progress()?;
            }
        }
    }

    /// Parks as [`Self::park`] does. After an error, wakes every future.
    fn park_or_wake_all(
        &self,
        core: &AsyncCore,
        timeout: Option<Duration>,
        is_woken: impl Fn() -> bool,
    ) -> Result<bool> {
        let waited = self.park(timeout, is_woken);
        waited.inspect_err(|_| core.wake_all())
    }

    /// Parks until the queue has an entry, the thread is woken, or `timeout` has passed. Returns at
    /// once if `is_woken` is true. Returns whether this thread waited at the queue; the wait reads
    /// no entry.
    fn park(&self, timeout: Option<Duration>, is_woken: impl Fn() -> bool) -> Result<bool> {
        let mut has_queue_waiter = lock(&self.has_queue_waiter);
        if is_woken() {
            return Ok(false);
        }
        if *has_queue_waiter {
            let timeout = timeout.unwrap_or(MAX_PARK);
            let woken = self.unparked.wait_timeout(has_queue_waiter, timeout);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
            return Ok(false);
        }
        *has_queue_waiter = true;
        drop(has_queue_waiter);
        let waited = self.cq.wait(&mut [], timeout);
        *lock(&self.has_queue_waiter) = false;
        self.unparked.notify_all();
        match waited {
            Ok(_) | Err(Errno::Again | Errno::Avail) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Unparks all threads.
    fn unpark_all(&self) {
        // A thread that found `is_woken` to be false under this lock is parked by now.
        drop(lock(&self.has_queue_waiter));
        self.unparked.notify_all();
        // `signal` fails if the queue has no wait object; then no thread can be parked at the queue.
        let _ = self.cq.signal();
    }
}

/// Maximum time of one wait of a thread that has no timeout. A thread that was not woken by then
/// waits again.
const MAX_PARK: Duration = Duration::from_secs(3600);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.parking.unpark_all();
    }
}
