//! The operations of a hub that are tried until they have a result. They run under its lock.

use std::sync::Arc;
use std::task::Waker;

use super::link::Link;
use super::locked::Access;
use super::shared::{Shared, register};
use super::state::{Change, Outcome, RequestLimit, State};
use crate::machine::{Incoming, Taken};
use crate::port::{Key, Port};
use crate::{End, Error, Message};

/// The failure of a request on a detached connection.
const NO_REQUESTS: &[u8] =
    b"the server receives a stream of messages on this connection, no requests";

/// Something that a listener reports.
#[derive(Debug)]
pub(crate) enum Report {
    Change(Change),
    Message(Arc<Shared>, Message),
    Request(Arc<Shared>, Incoming<Message>),
}

impl Access<'_> {
    /// The result of a client's attempts to connect; `None` while they go on. `waker` is woken
    /// then.
    pub(crate) fn connected(
        &mut self,
        waker: Option<&Waker>,
    ) -> Option<Result<Arc<Shared>, Error>> {
        let state = &mut *self.state;
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
    }

    /// The next report of a listener.
    pub(crate) fn next_report(&mut self, waker: Option<&Waker>) -> Option<Result<Report, Error>> {
        let Self { state, ports } = self;
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
    }

    /// Queues a message to a peer if there is room. The message is taken out of `message` when it
    /// is queued. Returns its number.
    pub(crate) fn send(
        &mut self,
        shared: &Shared,
        message: &mut Option<Message>,
        waker: Option<&Waker>,
    ) -> Option<Result<u64, Error>> {
        let link = match self.state.open_link(shared) {
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
        Some(self.queue(shared, queued))
    }

    /// Queues a message, whether there is room or not. Returns its number.
    pub(crate) fn queue(&mut self, shared: &Shared, message: Message) -> Result<u64, Error> {
        let link = self.state.open_link(shared)?;
        link.check_length(&message)?;
        let number = link.machine.send(message.into());
        self.state.pump(self.ports, shared.key.index as usize);
        Ok(number)
    }

    /// Whether the transport has sent a queued message.
    pub(crate) fn sent(
        &mut self,
        shared: &Shared,
        number: u64,
        waker: Option<&Waker>,
    ) -> Option<Result<(), Error>> {
        let Some(link) = self.state.link(shared.key) else {
            return Some(self.state.open_link(shared).map(drop));
        };
        if link.last_sent >= number {
            return Some(Ok(()));
        }
        if let Some(end) = shared.end.get() {
            return Some(Err(Error::Ended(end.clone())));
        }
        register(&mut link.sent_wakers, waker);
        None
    }

    /// Whether the queue of outgoing messages has room.
    pub(crate) fn room(
        &mut self,
        shared: &Shared,
        waker: Option<&Waker>,
    ) -> Option<Result<(), Error>> {
        match self.state.open_link(shared) {
            Ok(link) if link.machine.has_room() => Some(Ok(())),
            Ok(link) => {
                register(&mut link.room_wakers, waker);
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Queues a request, whether there is room or not: its caller has the message in any case.
    /// Returns its number.
    pub(crate) fn request(
        &mut self,
        shared: &Shared,
        message: Message,
        limit: Option<RequestLimit>,
    ) -> Result<u64, Error> {
        self.state.request(self.ports, shared, message, limit)
    }

    /// The outcome of a request, or `None` before; `waker` is woken then.
    pub(crate) fn outcome(&mut self, key: Key, id: u64, waker: Option<&Waker>) -> Option<Outcome> {
        self.state.take_outcome(key, id, waker)
    }

    /// The response to a request as a message, as [`Self::outcome`].
    pub(crate) fn response(
        &mut self,
        shared: &Shared,
        id: u64,
        waker: Option<&Waker>,
    ) -> Option<Result<Message, Error>> {
        let outcome = self.state.take_outcome(shared.key, id, waker)?;
        Some(outcome.and_then(|body| body.into_message(&self.ports[shared.port])))
    }

    /// The next message of a client's connection, or of a detached one.
    pub(crate) fn receive(
        &mut self,
        shared: &Shared,
        waker: Option<&Waker>,
    ) -> Option<Result<Message, Error>> {
        let Self { state, ports } = self;
        let (index, port) = (shared.key.index as usize, &ports[shared.port]);
        loop {
            let ended = || shared.end.get().cloned();
            let Some(link) = state.link(shared.key) else {
                return Some(Err(Error::Ended(ended().unwrap_or(End::Local))));
            };
            match link.machine.take() {
                Some(Taken::Message(message)) => {
                    state.after_take(ports, index);
                    return Some(message.into_message(port));
                }
                Some(Taken::Request(request)) => {
                    let refused = refuse(link, port, request.id);
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
    }

    /// The port of a connection.
    pub(crate) fn port(&self, shared: &Shared) -> &Port {
        &self.ports[shared.port]
    }

    /// Whether a peer has payloads that were lent to it.
    pub(super) fn is_any_lent(&self) -> bool {
        self.state.links.iter().any(|(_, link)| link.is_any_lent())
    }
}

/// Fails a request on a connection that is received from as a stream of messages.
fn refuse(link: &mut Link, port: &Port, id: u64) -> Result<(), Error> {
    let text = port.message_from(NO_REQUESTS)?;
    link.machine.respond(id, Err(text.into()));
    Ok(())
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
            Ok(Report::Request(shared, request))
        }
    });
    state.after_take(ports, index);
    report
}
