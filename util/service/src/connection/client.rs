//! `Connection`: a client's connection to a server.

use std::ops::Deref;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::peer::Peer;
use super::response::Response;
use crate::executor::{Driver, Step, is_driven, operation};
use crate::hub::{Access, Hub, Shared};
use crate::{Error, Message, Options};

/// Connects to a server at one of these addresses, with the default options. The server may start
/// later, within [`Options::connect_timeout`].
///
/// # Errors
/// The future fails with [`Error::Address`] for an unusable address, [`Error::NoServer`] when no
/// server responds, and [`Error::Version`] for a server of another version.
pub fn connect(addresses: &str) -> Connecting {
    connect_with(addresses, &Options::new())
}

/// As [`connect`], with options.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(addresses: &str, options: &Options) -> Connecting {
    Connecting {
        hub: Hub::connect(addresses, options).map_err(Some),
        request_timeout: options.request_timeout,
    }
}

/// The future of [`connect`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Connecting {
    hub: Result<Arc<Hub>, Option<Error>>,
    request_timeout: Option<Duration>,
}

impl Connecting {
    /// Blocks the thread until there is a result.
    ///
    /// # Errors
    /// As the future.
    pub fn wait(self) -> Result<Connection, Error> {
        let hub = self.hub.map_err(|error| error.unwrap_or(Error::NoDriver))?;
        let shared = hub.wait(None, |access| access.connected(None))?;
        let shared = shared.ok_or(Error::NoDriver)??;
        Ok(Connection::new(hub, shared, self.request_timeout))
    }
}

impl Future for Connecting {
    type Output = Result<Connection, Error>;

    fn poll(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        use std::task::Poll;
        let this = self.get_mut();
        let hub = match &mut this.hub {
            Ok(hub) => hub,
            Err(error) => return Poll::Ready(Err(error.take().unwrap_or(Error::NoDriver))),
        };
        match hub.with(|access| access.connected(Some(cx.waker()))) {
            Some(Ok(shared)) => {
                let hub = Arc::clone(hub);
                Poll::Ready(Ok(Connection::new(hub, shared, this.request_timeout)))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None if is_driven(hub) => Poll::Pending,
            None => Poll::Ready(Err(Error::NoDriver)),
        }
    }
}

/// A connection to a server. Threads and tasks may share it. Dropping it closes it; the server
/// learns of that.
///
/// It dereferences to the server as a [`Peer`], to which messages are sent.
#[derive(Debug)]
pub struct Connection {
    server: Peer,
    request_timeout: Option<Duration>,
}

impl Connection {
    fn new(hub: Arc<Hub>, shared: Arc<Shared>, request_timeout: Option<Duration>) -> Self {
        Self {
            server: Peer::new(hub, shared),
            request_timeout,
        }
    }

    /// Receives the next message that the server sends without a request.
    ///
    /// # Errors
    /// The future fails with [`Error::Ended`] when the connection has ended and all messages were
    /// received.
    pub fn receive(&self) -> Receiving<'_> {
        Receiving(self)
    }

    /// Sends a copy of `bytes` as a request, and resolves to the response. Any number of requests
    /// may be outstanding. The deadline is that of [`Options::request_timeout`], counted from the
    /// first poll or the blocking call, which sends the request; [`Response::timeout`] changes it.
    ///
    /// # Errors
    /// The future fails with [`Error::Timeout`] at the deadline, with [`Error::Failed`] if the
    /// server responds with a failure, with [`Error::TooLarge`] for a message beyond the server's
    /// limit, and with [`Error::Ended`] when the connection ends first.
    pub fn request(&self, bytes: &[u8]) -> Response<'_> {
        self.response(self.message_from(bytes))
    }

    /// Sends a message of this connection as a request.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn request_message(&self, message: Message) -> Response<'_> {
        self.response(Ok(message))
    }

    pub(crate) fn response(&self, message: Result<Message, Error>) -> Response<'_> {
        Response::new(&self.server, message, self.request_timeout)
    }

    /// Makes this connection's futures work under any executor: see [`Driver`].
    pub fn driver(&self) -> Driver {
        Driver::new(Arc::clone(&self.server.hub))
    }
}

impl Deref for Connection {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        &self.server
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.server.hub.close();
    }
}

/// The future of [`Connection::receive`]. A future that is dropped before its completion has taken
/// no message.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Receiving<'a>(&'a Connection);

impl<'a> Step<'a> for Receiving<'a> {
    type Output = Message;

    fn hub(&self) -> &'a Arc<Hub> {
        &self.0.server.hub
    }

    fn step(
        &mut self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<Message, Error>> {
        access.receive(&self.0.server.shared, waker)
    }
}

operation!(Receiving<'a>, Message);
