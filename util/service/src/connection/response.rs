//! `Response`: the future of a request.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::peer::Peer;
use crate::executor::{Step, operation};
use crate::hub::Hub;
use crate::{End, Error, Message};

/// The future of [`crate::Connection::request`]. Dropping it cancels the request: the server learns
/// of it.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Response<'a> {
    peer: &'a Peer,
    deadline: Option<Instant>,
    timeout: Duration,
    stage: Stage,
}

/// The progress of a request.
#[derive(Debug)]
enum Stage {
    /// The future was not polled yet.
    Unsent(Result<Message, Error>),
    /// The request with this number is queued or sent.
    Sent(u64),
    /// The outcome was returned.
    Done,
}

impl<'a> Response<'a> {
    /// The future of a request with a deadline, if `timeout` is given, counted from now on.
    pub(super) fn new(
        peer: &'a Peer,
        message: Result<Message, Error>,
        timeout: Option<Duration>,
    ) -> Self {
        Self {
            peer,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            timeout: timeout.unwrap_or_default(),
            stage: Stage::Unsent(message),
        }
    }

    /// Sets the deadline, from now on, in place of [`crate::Options::request_timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.deadline = Instant::now().checked_add(timeout);
        self
    }
}

impl Step for Response<'_> {
    type Output = Message;

    fn hub(&self) -> &Arc<Hub> {
        &self.peer.hub
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Result<Message, Error>> {
        let Peer { hub, shared } = self.peer;
        if let Stage::Unsent(message) = &mut self.stage {
            let message = match std::mem::replace(message, Err(Error::Ended(End::Local))) {
                Ok(message) => message,
                Err(error) => return Some(Err(error)),
            };
            let limit = (self.deadline, self.timeout);
            let (id, outcome) = match hub.await_request(shared, message, limit, waker) {
                Ok(queued) => queued,
                Err(error) => return Some(Err(error)),
            };
            self.stage = outcome.as_ref().map_or(Stage::Sent(id), |_| Stage::Done);
            return outcome.map(|it| it.and_then(|body| hub.message_of(shared.port, body)));
        }
        let Stage::Sent(id) = self.stage else {
            return Some(Err(Error::Ended(End::Local)));
        };
        let outcome = hub.outcome(shared.key, id, waker)?;
        self.stage = Stage::Done;
        Some(outcome.and_then(|body| hub.message_of(shared.port, body)))
    }
}

impl Drop for Response<'_> {
    fn drop(&mut self) {
        if let Stage::Sent(id) = self.stage {
            self.peer.hub.cancel(self.peer.shared.key, id);
        }
    }
}

operation!(Response<'a>, Message);
