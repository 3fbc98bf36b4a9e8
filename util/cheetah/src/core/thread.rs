//! The thread that moves bytes and rings bells for programs that do not call: only if it was asked
//! for. It runs nothing of the application's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::home::Shared;
use super::patience;
use crate::{Error, Result};

pub(super) struct Thread {
    news: Arc<News>,
    /// The count with which the last rest ended: the caller has looked since.
    seen: AtomicU64,
    handle: Option<JoinHandle<()>>,
}

/// Tells those who wait that something has come.
#[derive(Default)]
struct News {
    count: Mutex<u64>,
    changed: Condvar,
    /// The thread has to end.
    is_ending: AtomicBool,
}

/// How long the thread sleeps when nothing comes, and how late it sees that the controller ends.
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

    /// Sleeps until the thread has found something since the last rest ended, this time at most. For
    /// one caller, which looks at what has come between two rests.
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
            // A thread that has panicked has said so.
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
        // A rest that nothing comes for ends with its time.
        thread.rest(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| thread.rest(Duration::MAX));
            ring();
        });
    }
}
