//! The optional thread of the library, which progresses operations and rings bells while the
//! program makes no calls. The thread runs no code of the application.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::idle;
use super::state_cell::Shared;
use crate::{Error, Result};

pub(super) struct Thread {
    events: Arc<Events>,
    /// The event count at the end of the last wait. The caller has polled since.
    seen: AtomicU64,
    handle: Option<JoinHandle<()>>,
}

/// Event counter that waiting callers watch.
#[derive(Default)]
struct Events {
    count: Mutex<u64>,
    changed: Condvar,
    /// The thread must end.
    is_ending: AtomicBool,
}

/// Longest time that the thread parks without events, which is also the longest delay of its end.
const MAX_PARK: Duration = Duration::from_millis(50);

impl Thread {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let events = Arc::new(Events::default());
        let (progress_state, progress_events) = (Arc::clone(shared), Arc::clone(&events));
        let handle = std::thread::Builder::new()
            .name("cheetah".to_owned())
            .spawn(move || run(&progress_state, &progress_events))
            .map_err(|error| Error::io("cannot start the thread of the library", &error))?;
        Ok(Self {
            events,
            seen: AtomicU64::new(0),
            handle: Some(handle),
        })
    }

    /// Waits for at most this time until the thread reports an event after the end of the last
    /// wait. The one caller polls between two waits.
    pub(super) fn wait(&self, max: Duration) {
        let count = self.events.count.lock();
        let count = count.unwrap_or_else(PoisonError::into_inner);
        let seen = self.seen.load(Ordering::Relaxed);
        let changed = &self.events.changed;
        let waited = changed.wait_timeout_while(count, max, |count| *count == seen);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.seen.store(*count, Ordering::Relaxed);
    }
}

fn run(shared: &Shared, events: &Events) {
    while !events.is_ending.load(Ordering::Acquire) {
        let (queues, max) = {
            let mut state = shared.lock();
            let Some(engine) = &mut state.engine else {
                return;
            };
            if engine.progress() {
                *events.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                events.changed.notify_all();
                continue;
            }
            (engine.queues(), MAX_PARK.min(engine.max_park_time()))
        };
        idle::park_on_queues(&queues, max);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.events.is_ending.store(true, Ordering::Release);
        if let Some(handle) = self.handle.take() {
            // The panic hook has reported a panic of the thread.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_between_a_poll_and_a_wait_ends_the_wait() {
        let thread = Thread {
            events: Arc::default(),
            seen: AtomicU64::new(0),
            handle: None,
        };
        let report = || {
            *thread.events.count.lock().unwrap() += 1;
            thread.events.changed.notify_all();
        };
        report();
        thread.wait(Duration::MAX);
        // A wait without events ends after its time.
        thread.wait(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| thread.wait(Duration::MAX));
            report();
        });
    }
}
