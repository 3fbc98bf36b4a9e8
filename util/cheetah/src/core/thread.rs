//! The optional thread that progresses operations and rings bells for programs that do not call. It
//! runs no code of the application.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::idle;
use super::state_cell::Shared;
use crate::{Error, Result};

pub(super) struct Thread {
    events: Arc<Events>,
    /// The event count at the end of the last wait: the caller has polled since.
    seen: AtomicU64,
    handle: Option<JoinHandle<()>>,
}

/// Event counter that waiting callers watch.
#[derive(Default)]
struct Events {
    count: Mutex<u64>,
    changed: Condvar,
    /// Tells the thread to end.
    is_ending: AtomicBool,
}

/// Longest time that the thread parks without events. Bounds the delay of its end.
const MAX_PARK: Duration = Duration::from_millis(50);

impl Thread {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let events = Arc::new(Events::default());
        let (of, to) = (Arc::clone(shared), Arc::clone(&events));
        let handle = std::thread::Builder::new()
            .name("cheetah".to_owned())
            .spawn(move || run(&of, &to))
            .map_err(|error| Error::io("the thread that moves bytes", &error))?;
        Ok(Self {
            events,
            seen: AtomicU64::new(0),
            handle: Some(handle),
        })
    }

    /// Waits until the thread has reported an event since the end of the last wait, for at most
    /// this time. For one caller, which polls between two waits.
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
