//! `Request`: a request of a client, to which a server responds.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use selvedge::owned::SharedBuf;

use crate::hub::Cancellation;
use crate::machine::{Incoming, Payload};
use crate::message::Body;
use crate::{Error, Message, Peer};

/// A request of a client. It dereferences to the bytes of its message.
///
/// A request that is dropped without a response fails at the client.
#[derive(Debug)]
pub struct Request {
    peer: Peer,
    incoming: Incoming<Message>,
    /// The time of [`clock`] at which this process took the request.
    taken_at: Duration,
    /// Whether a response was sent.
    is_finished: AtomicBool,
}

impl Request {
    pub(super) fn new(peer: Peer, incoming: Incoming<Message>) -> Self {
        Self {
            peer,
            incoming,
            taken_at: clock(),
            is_finished: AtomicBool::new(false),
        }
    }

    /// The client.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The message of the request.
    pub fn message(&self) -> &Message {
        &self.incoming.payload
    }

    /// The time until which the client waits, counted from when this process took the request, to
    /// within a tick of the kernel (10 ms at most); `None` for a client that waits without a limit.
    pub fn deadline(&self) -> Option<Instant> {
        let time = Some(self.incoming.time).filter(|&time| time > 0)?;
        let passed = clock().saturating_sub(self.taken_at);
        let start = Instant::now().checked_sub(passed)?;
        start.checked_add(Duration::from_micros(time))
    }

    /// Whether the client has dropped the request or is lost. A response is then not sent.
    pub fn is_cancelled(&self) -> bool {
        let Peer { hub, shared } = &self.peer;
        !self.is_finished.load(Ordering::Relaxed) && hub.is_closed(shared, self.incoming.id)
    }

    /// The cancellation of this request, for a handler that waits for one.
    pub(super) fn cancellation(&self) -> Arc<Cancellation> {
        let Peer { hub, shared } = &self.peer;
        hub.cancellation(shared, self.incoming.id)
    }

    /// Sends a copy of `bytes` as the response. The call does not wait. Only the first response to
    /// a request is sent.
    pub fn respond(&self, bytes: &[u8]) {
        match self.response_of(bytes) {
            Ok(message) => self.finish(Ok(message.into())),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Sends a message of [`Peer::message`] as the response.
    pub fn respond_message(&self, message: Message) {
        match self.check_length(message.len()) {
            Ok(()) => self.finish(Ok(message.into())),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Sends a publication as the response, from memory that other connections send as well.
    pub(crate) fn respond_shared(&self, payload: SharedBuf) {
        let body = Body::Shared(payload);
        match self.check_length(body.len()) {
            Ok(()) => self.finish(Ok(body)),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Sends a value in the format of postcard as the response. A value that cannot be encoded is a
    /// failure.
    #[cfg(feature = "postcard")]
    pub fn respond_value<T: serde::Serialize + ?Sized>(&self, value: &T) {
        match self.peer.message_of(value) {
            Ok(message) => self.respond_message(message),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Has the request fail at the client, with [`Error::Failed`] and this text.
    pub fn fail(&self, text: &str) {
        if let Ok(message) = self.response_of(text.as_bytes()) {
            self.finish(Err(message));
        }
    }

    fn response_of(&self, bytes: &[u8]) -> Result<Message, Error> {
        self.check_length(bytes.len())?;
        self.peer.message_from(bytes)
    }

    fn check_length(&self, len: usize) -> Result<(), Error> {
        let limit = self.peer.shared.remote_limit;
        if len as u64 > limit {
            return Err(Error::TooLarge { len, limit });
        }
        Ok(())
    }

    fn finish(&self, outcome: Result<Body, Message>) {
        if self.is_finished.swap(true, Ordering::Relaxed) {
            return;
        }
        let Peer { hub, shared } = &self.peer;
        hub.respond(shared, self.incoming.id, outcome);
    }
}

impl Deref for Request {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.incoming.payload
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.is_finished.load(Ordering::Relaxed) {
            self.fail("the server has dropped the request");
        }
    }
}

/// The monotonic clock with the resolution of the kernel's tick, which is read in a third of the
/// time of the exact one.
fn clock() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from)
}
