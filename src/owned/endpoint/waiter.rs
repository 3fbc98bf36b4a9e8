//! `Waiter`: the future or stream that is notified when an awaited operation completes.

use std::mem;
use std::sync::Arc;
use std::task::Waker;

use super::endpoint_core::{BATCH, Deliver, Finished};
use super::messages::MessageQueue;
use crate::owned::Buf;

/// The owner of an awaited operation, which is notified when the operation completes.
#[derive(Clone, Debug)]
pub(super) enum Waiter {
    /// The queue of a multi-receive.
    Messages(Arc<MessageQueue>),
    /// A future that was last polled with this waker.
    Future(Waker),
    /// A future that was notified and has not been polled since.
    Notified,
    /// The future was dropped.
    Dropped,
}

impl Waiter {
    /// The waker, for a wake-up without a completion.
    pub(super) fn waker(self) -> Option<Waker> {
        match self {
            Self::Messages(queue) => queue.reader(),
            Self::Future(waker) => Some(waker),
            Self::Notified | Self::Dropped => None,
        }
    }
}

/// An action for a completion that is deferred until the lock of the slots is released: it may run
/// code that calls the endpoint.
#[derive(Default)]
pub(super) enum Deferred {
    #[default]
    None,
    Wake(Waker),
    ReleaseBuf(Buf),
    DropWaiter(Waiter),
}

impl Deferred {
    pub(super) fn run(self) {
        match self {
            Self::None => {}
            Self::Wake(waker) => waker.wake(),
            Self::ReleaseBuf(buf) => drop(buf),
            Self::DropWaiter(waiter) => drop(waiter),
        }
    }
}

/// The deferred actions for the completions of one read.
#[derive(Default)]
pub(super) struct DeferredActions {
    list: [Deferred; BATCH],
    len: usize,
}

impl DeferredActions {
    pub(super) fn run(self) {
        self.list.into_iter().take(self.len).for_each(Deferred::run);
    }
}

impl Deliver<Waiter> for DeferredActions {
    /// Returns a finished operation if a future will collect it.
    fn deliver(&mut self, mut finished: Finished<Waiter>) -> Option<Finished<Waiter>> {
        finished.set_len();
        let (action, rest) = match mem::replace(&mut finished.owner, Waiter::Notified) {
            Waiter::Messages(queue) => match queue.push(finished) {
                Ok(reader) => (reader.map_or(Deferred::None, Deferred::Wake), None),
                Err(buf) => (Deferred::ReleaseBuf(buf), None),
            },
            Waiter::Future(waker) => (Deferred::Wake(waker), Some(finished)),
            Waiter::Notified | Waiter::Dropped => (Deferred::ReleaseBuf(finished.buf), None),
        };
        self.list[self.len] = action;
        self.len += 1;
        rest
    }
}
