//! `Response`: the future of a request.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::peer::Peer;
use crate::executor::{Step, operation};
use crate::hub::{Access, Hub, RequestLimit};
use crate::{End, Error, Message};

/// The future of [`crate::Connection::request`]. Dropping it cancels the request: the server learns
/// of it.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Response<'a> {
    peer: &'a Peer,
    timeout: Option<Duration>,
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
    /// The future of a request with a time limit, if `timeout` is given.
    pub(super) fn new(
        peer: &'a Peer,
        message: Result<Message, Error>,
        timeout: Option<Duration>,
    ) -> Self {
        Self {
            peer,
            timeout,
            stage: Stage::Unsent(message),
        }
    }

    /// Sets the time limit, in place of [`crate::Options::request_timeout`]. It is counted from the
    /// first poll or the blocking call, which sends the request.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request, when the operation is tried for the first time.
    fn send(&mut self, access: &mut Access<'_>) -> Result<(), Error> {
        let Stage::Unsent(message) = &mut self.stage else {
            return Ok(());
        };
        let message = std::mem::replace(message, Err(Error::Ended(End::Local)))?;
        let limit = self.timeout.map(|timeout| RequestLimit {
            start: Instant::now(),
            timeout,
        });
        let id = access.request(&self.peer.shared, message, limit)?;
        self.stage = Stage::Sent(id);
        Ok(())
    }
}

impl<'a> Step<'a> for Response<'a> {
    type Output = Message;

    fn hub(&self) -> &'a Arc<Hub> {
        &self.peer.hub
    }

    #[inline]
    fn step(
        &mut self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<Message, Error>> {
        if let Err(error) = self.send(access) {
            return Some(Err(error));
        }
        let Stage::Sent(id) = self.stage else {
            return Some(Err(Error::Ended(End::Local)));
        };
        let response = access.response(&self.peer.shared, id, waker)?;
        self.stage = Stage::Done;
        Some(response)
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
