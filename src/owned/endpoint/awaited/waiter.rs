//! `Waiter`: the future or stream that is notified when an awaited operation completes.

use std::sync::Arc;
use std::task::Waker;

use super::message_queue::MessageQueue;
use crate::owned::endpoint::endpoint_core::{BATCH, Deliver, EndpointCore, Finished};
use crate::owned::{Buf, Received};
use crate::{FiAddr, cq};

/// The owner of an awaited operation, which is notified when the operation completes.
#[derive(Clone, Debug)]
pub(super) enum Waiter {
    /// The queue of a multi-receive.
    Messages(Arc<MessageQueue>),
    /// A future that was last polled with this waker.
    Future(Waker),
    /// The future was dropped.
    Dropped,
}

impl Waiter {
    /// The waker, for a wake-up without a completion.
    pub(super) fn waker(self) -> Option<Waker> {
        match self {
            Self::Messages(queue) => queue.reader(),
            Self::Future(waker) => Some(waker),
            Self::Dropped => None,
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

/// An endpoint whose completions are delivered to waiters.
pub(super) type WaiterCore = EndpointCore<Waiter, [cq::Entry; BATCH]>;

impl Deliver<Waiter> for Deferred {
    /// Stores the action. Returns a finished operation if a future will collect it.
    fn deliver(
        &mut self,
        (entry, src): (&mut cq::Entry, FiAddr),
        owner: Waiter,
        buf: Buf,
        error: Option<Box<cq::ErrEntry>>,
    ) -> Option<Finished> {
        let outcome = error.map_or_else(|| Ok(Received::new(entry, src)), Err);
        let finished = Finished { buf, outcome };
        let (action, rest) = match owner {
            Waiter::Messages(queue) => match queue.push(finished) {
                Ok(reader) => (reader.map_or(Self::None, Self::Wake), None),
                Err(buf) => (Self::ReleaseBuf(buf), None),
            },
            Waiter::Future(waker) => (Self::Wake(waker), Some(finished)),
            Waiter::Dropped => (Self::ReleaseBuf(finished.buf), None),
        };
        *self = action;
        rest
    }
}
