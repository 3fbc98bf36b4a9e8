//! The operations of a hub's handles on its connections.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Hub;
use super::link::closing::LINGER;
use super::link::{Call, Link};
use super::shared::{Cancellation, Shared, register};
use super::state::{Change, State};
use crate::machine::{Incoming, Taken};
use crate::message::Body;
use crate::port::{Key, Port};
use crate::{End, Error, Message};

/// How long closing drives the ports at most.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// The failure of a request on a detached connection.
const NO_REQUESTS: &[u8] =
    b"the server receives a stream of messages on this connection, no requests";

/// The result of a request: the response, or the reason why there is none.
pub(crate) type Outcome = Result<Body, Error>;

/// Something that a listener reports.
#[derive(Debug)]
pub(crate) enum Report {
    Change(Change),
    Message(Arc<Shared>, Message),
    Request(Arc<Shared>, Incoming<Message>, Arc<Cancellation>),
}

impl Hub {
    /// The result of a client's attempts to connect; `None` while they go on. `waker` is woken
    /// then.
    pub(crate) fn connected(&self, waker: Option<&Waker>) -> Option<Result<Arc<Shared>, Error>> {
        self.with(|state, _| {
            let outcome = match (&state.failure, &state.attempts.outcome) {
                (Some(failure), _) => Err(failure.clone()),
                (None, Some(outcome)) => outcome.clone(),
                (None, None) => {
                    state.attempts.waker = waker.cloned();
                    return None;
                }
            };
            Some(outcome.and_then(|key| {
                let link = state.link(key).ok_or(Error::Ended(End::Remote))?;
                Ok(Arc::clone(&link.shared))
            }))
        })
    }

    /// The next report of a listener.
    pub(crate) fn next_report(&self, waker: Option<&Waker>) -> Option<Result<Report, Error>> {
        self.with(|state, ports| {
            if let Some(change) = state.changes.pop_front() {
                return Some(Ok(Report::Change(change)));
            }
            while let Some(index) = state.next_listed() {
                if let Some(report) = take(state, ports, index) {
                    return Some(report);
                }
                // The end of a connection may have been reported by this.
                if let Some(change) = state.changes.pop_front() {
                    return Some(Ok(Report::Change(change)));
                }
            }
            if let Some(failure) = &state.failure {
                return Some(Err(failure.clone()));
            }
            register(&mut state.change_wakers, waker);
            None
        })
    }

    /// Queues a message to a peer if there is room. The message is taken out of `message` when it
    /// is queued. Returns its number.
    pub(crate) fn send(
        &self,
        shared: &Shared,
        message: &mut Option<Message>,
        waker: Option<&Waker>,
    ) -> Option<Result<u64, Error>> {
        self.with(|state, ports| {
            let link = match open_link(state, shared) {
                Ok(link) => link,
                Err(error) => return Some(Err(error)),
            };
            if !link.machine.has_room() {
                register(&mut link.room_wakers, waker);
                return None;
            }
            let Some(queued) = message.take() else {
                return Some(Err(Error::Ended(End::Local)));
            };
            if let Err(error) = check_length(link, &queued) {
                return Some(Err(error));
            }
            let number = link.machine.send(queued.into());
            state.pump(ports, shared.key.index as usize);
            Some(Ok(number))
        })
    }

    /// Whether the transport has sent a queued message.
    pub(crate) fn sent(
        &self,
        shared: &Shared,
        number: u64,
        waker: Option<&Waker>,
    ) -> Option<Result<(), Error>> {
        self.with(|state, _| {
            let Some(link) = state.link(shared.key) else {
                return Some(open_link(state, shared).map(drop));
            };
            if link.last_sent >= number {
                return Some(Ok(()));
            }
            if let Some(end) = shared.end.get() {
                return Some(Err(Error::Ended(end.clone())));
            }
            register(&mut link.sent_wakers, waker);
            None
        })
    }

    /// Takes a message back that is still queued.
    pub(crate) fn take_back(&self, shared: &Shared, number: u64) {
        self.with(|state, _| {
            if let Some(link) = state.link(shared.key) {
                link.machine.take_back(number);
            }
        });
    }

    /// Queues a request, whether there is room or not: its caller has the message in any case.
    /// Returns its number.
    pub(crate) fn request(
        &self,
        shared: &Shared,
        message: Message,
        limit: (Option<Instant>, Duration),
    ) -> Result<u64, Error> {
        self.with(|state, ports| queue_request(state, ports, shared, message, limit))
    }

    /// As [`Self::request`]. Returns the outcome as well, if there is one already; `waker` is woken
    /// when there is one later.
    pub(crate) fn await_request(
        &self,
        shared: &Shared,
        message: Message,
        limit: (Option<Instant>, Duration),
        waker: Option<&Waker>,
    ) -> Result<(u64, Option<Outcome>), Error> {
        self.with(|state, ports| {
            let id = queue_request(state, ports, shared, message, limit)?;
            Ok((id, take_outcome(state, shared.key, id, waker)))
        })
    }

    /// The outcome of a request.
    pub(crate) fn outcome(&self, key: Key, id: u64, waker: Option<&Waker>) -> Option<Outcome> {
        self.with(|state, _| take_outcome(state, key, id, waker))
    }

    /// Forgets a request. The peer learns of it if it has not responded.
    pub(crate) fn cancel(&self, key: Key, id: u64) {
        self.with(|state, ports| {
            let Some(link) = state.link(key) else {
                return;
            };
            let call = link.calls.remove(&id);
            if call.is_some_and(|call| call.outcome.is_none()) && link.is_open() {
                link.machine.cancel(id);
                state.pump(ports, key.index as usize);
            }
        });
    }

    /// The next message of a client's connection, or of a detached one.
    pub(crate) fn receive(
        &self,
        shared: &Shared,
        waker: Option<&Waker>,
    ) -> Option<Result<Message, Error>> {
        let index = shared.key.index as usize;
        self.with(|state, ports| {
            loop {
                let ended = || shared.end.get().cloned();
                let Some(link) = state.link(shared.key) else {
                    return Some(Err(Error::Ended(ended().unwrap_or(End::Local))));
                };
                match link.machine.take() {
                    Some(Taken::Message(message)) => {
                        state.after_take(ports, index);
                        return Some(message.into_message(&ports[shared.port]));
                    }
                    Some(Taken::Request(request)) => {
                        let refused = ports[shared.port].message_from(NO_REQUESTS);
                        let refused =
                            refused.map(|text| link.machine.respond(request.id, Err(text.into())));
                        state.after_take(ports, index);
                        if let Err(error) = refused {
                            return Some(Err(error));
                        }
                    }
                    None => {
                        if let Some(end) = ended() {
                            return Some(Err(Error::Ended(end)));
                        }
                        register(&mut link.message_wakers, waker);
                        return None;
                    }
                }
            }
        })
    }

    /// Has the payloads of the peer received by reference, if the peer lends them.
    pub(crate) fn accept_lent(&self, shared: &Shared) {
        self.with(|state, _| state.link(shared.key).map(Link::accept_lent));
    }

    /// Drives the hub until all peers have given back what was lent to them, for a bounded time.
    pub(crate) fn await_lent(&self) -> Result<(), Error> {
        let is_any_lent =
            || self.with(|state, _| state.links.iter().any(|(_, it)| it.is_any_lent()));
        let deadline = Instant::now() + LINGER;
        self.wait(Some(deadline), || (!is_any_lent()).then_some(()))
            .map(drop)
    }

    /// Has the messages of a client received by [`Self::receive`] alone.
    pub(crate) fn detach(&self, shared: &Shared) {
        self.with(|state, _| {
            if state.link(shared.key).is_some() {
                state.detach(shared.key.index as usize);
            }
        });
    }

    /// Ends a detached connection, and drops the messages that were not received.
    pub(crate) fn discard(&self, shared: &Shared) {
        self.end(shared);
        self.with(|state, ports| {
            while let Some(link) = state.link(shared.key)
                && link.machine.take().is_some()
            {
                state.after_take(ports, shared.key.index as usize);
            }
        });
    }

    /// Whether the queue of outgoing messages has room.
    pub(crate) fn room(&self, shared: &Shared, waker: Option<&Waker>) -> Option<Result<(), Error>> {
        self.with(|state, _| match open_link(state, shared) {
            Ok(link) if link.machine.has_room() => Some(Ok(())),
            Ok(link) => {
                register(&mut link.room_wakers, waker);
                None
            }
            Err(error) => Some(Err(error)),
        })
    }

    /// Queues a message, whether there is room or not. Returns its number.
    pub(crate) fn queue(&self, shared: &Shared, message: Message) -> Result<u64, Error> {
        self.with(|state, ports| {
            let link = open_link(state, shared)?;
            check_length(link, &message)?;
            let number = link.machine.send(message.into());
            state.pump(ports, shared.key.index as usize);
            Ok(number)
        })
    }

    /// Queues the response to a request. A response to a cancelled request is dropped.
    pub(crate) fn respond(&self, shared: &Shared, id: u64, outcome: Result<Body, Message>) {
        self.with(|state, ports| {
            if let Some(link) = state.link(shared.key)
                && link.active.remove(&id).is_some()
            {
                link.machine.respond(id, outcome.map_err(Body::from));
                state.pump(ports, shared.key.index as usize);
            }
        });
    }

    /// Ends a connection, and wakes those that wait for it.
    pub(crate) fn end(&self, shared: &Shared) {
        self.with(|state, ports| {
            if state.link(shared.key).is_some() {
                state.end(ports, shared.key.index as usize, &End::Local);
            }
        });
        self.signal();
    }

    /// Ends all connections, and drives the ports while they are active, for a bounded time.
    pub(crate) fn close(&self) {
        self.with(|state, ports| {
            let open: Vec<_> = state.links.iter().map(|(index, _)| index).collect();
            for index in open {
                state.end(ports, index, &End::Local);
            }
        });
        let deadline = Instant::now() + CLOSE_TIMEOUT;
        while self.poll() && Instant::now() < deadline {}
    }
}

/// Queues a request, and posts what the connection can send. Returns the number of the request.
fn queue_request(
    state: &mut State,
    ports: &[Port],
    shared: &Shared,
    message: Message,
    (deadline, timeout): (Option<Instant>, Duration),
) -> Result<u64, Error> {
    let link = open_link(state, shared)?;
    check_length(link, &message)?;
    let id = link.machine.request(message.into(), deadline);
    let call = Call {
        waker: None,
        outcome: None,
        deadline,
        timeout,
    };
    link.calls.insert(id, call);
    if let Some(at) = deadline {
        state.sweep_at(at);
    }
    state.pump(ports, shared.key.index as usize);
    Ok(id)
}

/// Takes the outcome of a request, or has `waker` woken when there is one.
fn take_outcome(state: &mut State, key: Key, id: u64, waker: Option<&Waker>) -> Option<Outcome> {
    let ended = Some(Err(Error::Ended(End::Local)));
    let Some(link) = state.link(key) else {
        return ended;
    };
    let Some(call) = link.calls.get_mut(&id) else {
        return ended;
    };
    let outcome = call.outcome.take();
    if outcome.is_some() {
        link.calls.remove(&id);
    } else {
        call.waker = waker.cloned();
    }
    outcome
}

/// Takes the oldest message or request of a connection.
fn take(state: &mut State, ports: &[Port], index: usize) -> Option<Result<Report, Error>> {
    let link = state.links.get_mut(index)?;
    let shared = Arc::clone(&link.shared);
    let port = &ports[shared.port];
    let report = link.machine.take().map(|taken| match taken {
        Taken::Message(message) => {
            let message = message.into_message(port)?;
            Ok(Report::Message(shared, message))
        }
        Taken::Request(Incoming { id, payload, time }) => {
            let payload = payload.into_message(port)?;
            let request = Incoming { id, payload, time };
            let cancellation = Arc::new(Cancellation::default());
            link.active.insert(id, Arc::clone(&cancellation));
            Ok(Report::Request(shared, request, cancellation))
        }
    });
    state.after_take(ports, index);
    report
}

/// The connection, if it has not ended.
fn open_link<'a>(state: &'a mut State, shared: &Shared) -> Result<&'a mut Link, Error> {
    if let Some(end) = shared.end.get() {
        return Err(Error::Ended(end.clone()));
    }
    state.link(shared.key).ok_or(Error::Ended(End::Local))
}

fn check_length(link: &Link, message: &Message) -> Result<(), Error> {
    let (len, limit) = (message.len(), link.shared.remote_limit);
    if len as u64 > limit {
        return Err(Error::TooLarge { len, limit });
    }
    Ok(())
}
