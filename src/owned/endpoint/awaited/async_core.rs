//! `AsyncCore`: an endpoint as its futures use it, with the posts that found a full queue.

use std::task::{self, Waker};

use super::backlog::{Backlog, QueueKey};
use super::waiter::{Deferred, Waiter, WaiterCore};
use crate::owned::endpoint::endpoint_core::BATCH;
use crate::{Errno, FiAddr, Result, wait};

/// The core of an [`super::AsyncEndpoint`], which its futures borrow.
#[derive(Debug)]
pub(super) struct AsyncCore {
    backlog: Backlog,
    endpoint: WaiterCore,
}

impl AsyncCore {
    pub(super) fn new(endpoint: WaiterCore) -> Self {
        Self {
            backlog: Backlog::default(),
            endpoint,
        }
    }

    pub(super) fn endpoint(&self) -> &WaiterCore {
        &self.endpoint
    }

    pub(super) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// Reads completions and wakes their futures, posts operations that waited for room, and frees
    /// the buffers of dropped futures. Returns the number of completions.
    pub(super) fn progress(&self) -> Result<usize> {
        let mut deferred = [const { Deferred::None }; BATCH];
        let count = self
            .endpoint
            .with_reader(|reader, entries| reader.read(entries, &mut deferred));
        deferred.into_iter().for_each(Deferred::run);
        self.backlog
            .flush(&self.endpoint)
            .into_iter()
            .for_each(Deferred::run);
        if count.is_err() {
            self.wake_all();
        }
        count.map(|count| count.read)
    }

    /// Fails with [`Errno::Again`] while operations to this peer are in the backlog: an injected
    /// operation must not overtake them.
    pub(super) fn check_backlog(&self, peer: FiAddr) -> Result {
        let key = QueueKey::To(peer);
        if self.backlog.contains(key) {
            self.progress()?;
            if self.backlog.contains(key) {
                return Err(Errno::Again);
            }
        }
        Ok(())
    }

    /// Wakes the task of a pending future, unless the queue has a wait object, and a thread or an
    /// executor waits for completions.
    pub(super) fn poll_again(&self, cx: &task::Context<'_>) {
        if self.endpoint.wait_object() == wait::Object::None {
            cx.waker().wake_by_ref();
        }
    }

    /// Wakes every future that waits for a completion, after a failed read of completions: their
    /// own read fails too, and ends them.
    #[cold]
    pub(super) fn wake_all(&self) {
        let wakers = self.endpoint.owners().into_iter().filter_map(Waiter::waker);
        wakers.for_each(Waker::wake);
    }
}
