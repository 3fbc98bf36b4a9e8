//! The operations of a hub's handles on its connections that have their result at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Hub;
use super::link::Link;
use super::link::closing::LINGER;
use super::locked::Access;
use super::shared::{Cancellation, Shared};
use crate::message::Body;
use crate::port::Key;
use crate::{End, Error, Message};

/// How long closing drives the ports at most.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

impl Hub {
    /// Takes a message back that is still queued.
    pub(crate) fn take_back(&self, shared: &Shared, number: u64) {
        self.with(|Access { state, .. }| {
            if let Some(link) = state.link(shared.key) {
                link.machine.take_back(number);
            }
        });
    }

    /// Forgets a request. The peer learns of it if it has not responded.
    pub(crate) fn cancel(&self, key: Key, id: u64) {
        self.with(|Access { state, ports }| {
            let Some(link) = state.link(key) else {
                return;
            };
            let call = link.calls.remove(id);
            if call.is_some_and(|call| call.outcome.is_none()) && link.is_open() {
                link.machine.cancel(id);
                state.pump(ports, key.index as usize);
            }
        });
    }

    /// Has the payloads of the peer received by reference, if the peer lends them.
    pub(crate) fn accept_lent(&self, shared: &Shared) {
        self.with(|Access { state, .. }| state.link(shared.key).map(Link::accept_lent));
    }

    /// Drives the hub until all peers have given back what was lent to them, for a bounded time.
    pub(crate) fn await_lent(&self) -> Result<(), Error> {
        let deadline = Instant::now() + LINGER;
        self.wait(Some(deadline), |access| {
            (!access.is_any_lent()).then_some(())
        })
        .map(drop)
    }

    /// Has the messages of a client received by [`Access::receive`] alone.
    pub(crate) fn detach(&self, shared: &Shared) {
        self.with(|Access { state, .. }| {
            if state.link(shared.key).is_some() {
                state.detach(shared.key.index as usize);
            }
        });
    }

    /// Ends a detached connection, and drops the messages that were not received.
    pub(crate) fn discard(&self, shared: &Shared) {
        self.end(shared);
        self.with(|Access { state, ports }| {
            while let Some(link) = state.link(shared.key)
                && link.machine.take().is_some()
            {
                state.after_take(ports, shared.key.index as usize);
            }
        });
    }

    /// Queues the response to a request. A response to a cancelled request is dropped.
    pub(crate) fn respond(&self, shared: &Shared, id: u64, outcome: Result<Body, Message>) {
        self.with(|Access { state, ports }| {
            if let Some(link) = state.link(shared.key) {
                if !link.active.is_empty() {
                    link.active.remove(&id);
                }
                link.machine.respond(id, outcome.map_err(Body::from));
                state.pump(ports, shared.key.index as usize);
            }
        });
    }

    /// Whether a request that the application has taken was cancelled or answered, or its client is
    /// lost.
    pub(crate) fn is_closed(&self, shared: &Shared, id: u64) -> bool {
        self.with(|Access { state, .. }| {
            let link = state.link(shared.key);
            link.is_none_or(|link| !link.machine.is_open(id))
        })
    }

    /// The cancellation of a request that the application has taken and not answered.
    pub(crate) fn cancellation(&self, shared: &Shared, id: u64) -> Arc<Cancellation> {
        let cancellation = Arc::new(Cancellation::default());
        self.with(|Access { state, .. }| match state.link(shared.key) {
            Some(link) if link.machine.is_open(id) => {
                link.active.insert(id, Arc::clone(&cancellation));
            }
            _ => _ = cancellation.set(),
        });
        cancellation
    }

    /// Ends a connection, and wakes those that wait for it.
    pub(crate) fn end(&self, shared: &Shared) {
        self.with(|Access { state, ports }| {
            if state.link(shared.key).is_some() {
                state.end(ports, shared.key.index as usize, &End::Local);
            }
        });
        self.signal();
    }

    /// Ends all connections, and drives the ports while they are active, for a bounded time.
    pub(crate) fn close(&self) {
        self.with(|Access { state, ports }| {
            let open: Vec<_> = state.links.iter().map(|(index, _)| index).collect();
            for index in open {
                state.end(ports, index, &End::Local);
            }
        });
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.poll() && Instant::now() < deadline {}
    }
}
