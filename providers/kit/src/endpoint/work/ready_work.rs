//! The work of a domain that is ready to be carried out.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use selvedge::trigger::WorkId;
use selvedge::{Errno, Error, Result};

use super::item::{FireOutcome, WorkItem};
use crate::cq::{Progress, Sink};
use crate::wait::ArmOutcome;

/// The work of a domain that is ready to be carried out.
#[derive(Debug)]
pub(crate) struct ReadyWork {
    ready: Mutex<VecDeque<WorkItem>>,
    /// Whether there is ready work. A thread that adds work writes it and then loads `is_armed`; a
    /// thread that is about to park writes `is_armed` and then loads this word. Both are `SeqCst`,
    /// so one of the two sees the other's store.
    is_ready: AtomicBool,
    is_armed: AtomicBool,
    /// Held while work is carried out, so that the work is carried out in the order in which it
    /// became ready.
    running: Mutex<()>,
    wakeup: EventFd,
    next_id: AtomicU64,
}

impl ReadyWork {
    /// Makes an empty list of ready work.
    ///
    /// # Errors
    /// The system's error, if no descriptor is left.
    pub(crate) fn open() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wakeup = EventFd::from_value_and_flags(0, flags).map_err(|cause| {
            let message = "deferred work: an eventfd to wake parked threads";
            Error::new(Errno::from_raw(cause as i32), message).because(cause)
        })?;
        Ok(Self {
            ready: Mutex::default(),
            is_ready: AtomicBool::new(false),
            is_armed: AtomicBool::new(false),
            running: Mutex::new(()),
            wakeup,
            next_id: AtomicU64::new(1),
        })
    }

    pub(crate) fn next_id(&self) -> WorkId {
        WorkId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds ready work; the next progress carries it out.
    pub(crate) fn add(&self, items: impl IntoIterator<Item = WorkItem>) {
        let mut ready = self.lock_ready();
        ready.extend(items);
        self.is_ready.store(!ready.is_empty(), Ordering::SeqCst);
        drop(ready);
        if self.is_armed.load(Ordering::SeqCst) && self.is_armed.swap(false, Ordering::SeqCst) {
            // The write fails when the count has reached 2^64 - 1, and then the descriptor is
            // ready.
            let _ = self.wakeup.write(1);
        }
    }

    /// Removes the work that `is_selected` accepts. After the return, none of the removed work is
    /// being carried out.
    pub(crate) fn remove(&self, is_selected: impl Fn(&WorkItem) -> bool) -> usize {
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ready = self.lock_ready();
        let previous_len = ready.len();
        ready.retain(|item| !is_selected(item));
        previous_len - ready.len()
    }

    /// Carries out the ready work, unless another thread does.
    pub(crate) fn run(&self) -> usize {
        if !self.is_ready.load(Ordering::SeqCst) {
            return 0;
        }
        let Ok(_running) = self.running.try_lock() else {
            return 0;
        };
        let (mut fired, mut blocked) = (0, VecDeque::new());
        while let Some(item) = self.pop() {
            let is_behind = blocked.iter().any(|other| item.is_behind(other));
            if is_behind || item.action.fire() == FireOutcome::Retry {
                blocked.push_back(item)
            } else {
                fired += 1
            }
        }
        self.put_back(blocked);
        fired
    }

    fn pop(&self) -> Option<WorkItem> {
        self.lock_ready().pop_front()
    }

    /// Puts back the work that has to be retried. Until this call [`Self::is_ready`] stays set: a
    /// thread that is about to park meanwhile must not miss the work.
    fn put_back(&self, mut blocked: VecDeque<WorkItem>) {
        let mut ready = self.lock_ready();
        blocked.append(&mut ready);
        *ready = blocked;
        self.is_ready.store(!ready.is_empty(), Ordering::SeqCst);
    }

    fn lock_ready(&self) -> MutexGuard<'_, VecDeque<WorkItem>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time that a thread parks for while work waits for room, or another thread carries work out.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

impl Progress for ReadyWork {
    fn progress(&self, _budget: usize, _sink: &mut Sink<'_>) -> usize {
        self.run()
    }

    fn arm(&self, _epoch: &mut u64) -> ArmOutcome {
        // The read fails when no thread has written.
        let _ = self.wakeup.read();
        self.is_armed.store(true, Ordering::SeqCst);
        if !self.is_ready.load(Ordering::SeqCst) {
            return ArmOutcome::UntilWoken;
        }
        match self.run() {
            0 => ArmOutcome::AtMost(RETRY_INTERVAL),
            _ => ArmOutcome::Progressed,
        }
    }

    fn woken(&self) {
        self.run();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.wakeup.as_fd())
    }
}
