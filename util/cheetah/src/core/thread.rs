//! The thread that moves bytes and rings bells for programs that do not call: only if it was asked
//! for. It runs nothing of the application's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::home::Shared;
use super::patience;
use crate::{Error, Result};

pub(super) struct Thread {
    news: Arc<News>,
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
            handle: Some(handle),
        })
    }

    /// Sleeps until the thread has found something.
    pub(super) fn rest(&self, most: Duration) {
        let count = self
            .news
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // What came between the caller's look and this sleep is seen after the time.
        let most = most.min(Duration::from_millis(1));
        drop(self.news.changed.wait_timeout(count, most));
    }
}

fn run(shared: &Shared, news: &News) {
    while !news.is_ending.load(Ordering::Acquire) {
        let queues = {
            let mut state = shared.lock();
            let Some(engine) = &mut state.engine else {
                return;
            };
            if engine.progress() {
                *news.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                news.changed.notify_all();
                continue;
            }
            engine.queues()
        };
        patience::sleep_on_queues(&queues, LONGEST);
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
