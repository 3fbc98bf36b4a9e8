//! `Messages`: the messages of one connection as a stream and a sink.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::{Sink, Stream};

use super::client::Connection;
use super::peer::Peer;
use crate::executor::{poll_operation, wait_operation};
use crate::hub::{Access, Hub};
use crate::{End, Error, Message};

/// The messages of one connection: a [`Stream`] of the peer's messages, and a [`Sink`] of messages
/// to the peer ([`Peer::message`]). Dropping it closes the connection, and messages that were not
/// flushed may be lost.
///
/// The stream ends when the peer has closed the connection; any other end is its last item, an
/// error. [`Connection::into_messages`] and [`Peer::into_messages`] make it.
#[derive(Debug)]
pub struct Messages {
    peer: Peer,
    /// A client's connection, which ends with this value.
    connection: Option<Connection>,
    last_queued: u64,
    has_ended: bool,
}

impl Connection {
    /// This connection as a stream and a sink of messages.
    pub fn into_messages(self) -> Messages {
        let peer = Peer::clone(&self);
        Messages::new(peer, Some(self))
    }
}

impl Peer {
    /// The client's connection as a stream and a sink of messages. The listener reports no message
    /// and no request of the client any more, and a request fails. [`crate::Event::Lost`] is still
    /// reported.
    pub fn into_messages(self) -> Messages {
        self.hub.detach(&self.shared);
        Messages::new(self, None)
    }
}

impl Messages {
    fn new(peer: Peer, connection: Option<Connection>) -> Self {
        Self {
            peer,
            connection,
            last_queued: 0,
            has_ended: false,
        }
    }

    /// The peer.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn hub(&self) -> &Arc<Hub> {
        &self.peer.hub
    }

    pub(super) fn receive(
        &self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<Message, Error>> {
        access.receive(&self.peer.shared, waker)
    }

    pub(super) fn room(
        &self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<(), Error>> {
        access.room(&self.peer.shared, waker)
    }

    pub(super) fn queue(&mut self, access: &mut Access<'_>, message: Message) -> Result<(), Error> {
        self.last_queued = access.queue(&self.peer.shared, message)?;
        Ok(())
    }

    pub(super) fn sent(
        &self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<(), Error>> {
        access.sent(&self.peer.shared, self.last_queued, waker)
    }

    /// Blocks until the transport has sent all messages.
    ///
    /// # Errors
    /// [`Error::Ended`] when the connection ends first.
    pub fn wait_flushed(&self) -> Result<(), Error> {
        wait_operation(self.hub(), |access| self.sent(access, None))
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if self.connection.is_none() {
            self.peer.hub.discard(&self.peer.shared);
        }
    }
}

impl Stream for Messages {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let received = poll_operation(self.hub(), cx, |access, waker| {
            self.receive(access, Some(waker))
        });
        received.map(|received| {
            self.has_ended = matches!(received, Err(Error::Ended(_)));
            Some(received).filter(|it| !matches!(it, Err(Error::Ended(End::Remote))))
        })
    }
}

impl Sink<Message> for Messages {
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        poll_operation(self.hub(), cx, |access, waker| {
            self.room(access, Some(waker))
        })
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        let hub = Arc::clone(self.hub());
        hub.with(|access| self.queue(access, message))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        poll_operation(self.hub(), cx, |access, waker| {
            self.sent(access, Some(waker))
        })
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_flush(cx)
    }
}
