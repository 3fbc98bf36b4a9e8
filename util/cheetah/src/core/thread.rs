//! The optional thread that progresses operations and rings bells for programs that do not call. It
//! runs no code of the application.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::home::Shared;
use super::patience;
use crate::{Error, Result};

pub(super) struct Thread {
    news: Arc<News>,
    /// The event count at the end of the last wait: the caller has polled since.
    seen: AtomicU64,
    handle: Option<JoinHandle<()>>,
}

/// Event counter that waiting callers watch.
#[derive(Default)]
struct News {
    count: Mutex<u64>,
    changed: Condvar,
    /// Tells the thread to end.
    is_ending: AtomicBool,
}

/// Longest time that the thread parks without events. Bounds the delay of its end.
const LONGEST: Duration = Duration::from_millis(50);

impl Thread {
    pub(super) fn start(shared: &Arc<Shared>) -> Result<Self> {
        let news = Arc::new(News::default());
        let (of, to) = (Arc::clone(shared), Arc::clone(&news));
        let handle = std::thread::Builder::new()
            .name("cheetah".to_owned())
            .spawn(move || run(&of, &to))
            .map_err(|error| Error::io("the thread that moves bytes", &error))?;
        Ok(Self {
            news,
            seen: AtomicU64::new(0),
            handle: Some(handle),
        })
    }

    /// Waits until the thread has reported an event since the end of the last wait, for at most
    /// this time. For one caller, which polls between two waits.
    pub(super) fn rest(&self, most: Duration) {
        let count = self.news.count.lock();
        let count = count.unwrap_or_else(PoisonError::into_inner);
        let seen = self.seen.load(Ordering::Relaxed);
        let changed = &self.news.changed;
        let waited = changed.wait_timeout_while(count, most, |count| *count == seen);
        let (count, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.seen.store(*count, Ordering::Relaxed);
    }
}

fn run(shared: &Shared, news: &News) {
    while !news.is_ending.load(Ordering::Acquire) {
        let (queues, most) = {
            let mut state = shared.lock();
            let Some(engine) = &mut state.engine else {
                return;
            };
            if engine.progress() {
                *news.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                news.changed.notify_all();
                continue;
            }
            (engine.queues(), LONGEST.min(engine.patience()))
        };
        patience::sleep_on_queues(&queues, most);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.news.is_ending.store(true, Ordering::Release);
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
    fn what_comes_between_a_look_and_a_rest_ends_the_rest() {
        let thread = Thread {
            news: Arc::default(),
            seen: AtomicU64::new(0),
            handle: None,
        };
        let ring = || {
            *thread.news.count.lock().unwrap() += 1;
            thread.news.changed.notify_all();
        };
        ring();
        thread.rest(Duration::MAX);
        // A wait without events ends after its time.
        thread.rest(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| thread.rest(Duration::MAX));
            ring();
        });
    }
}
