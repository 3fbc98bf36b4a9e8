//! `Connection`: a client's connection to a server.

use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::hub::{Hub, Shared};
use crate::step::{Step, operation};
use crate::{Driver, End, Error, Message, Options};

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
        let shared = hub.wait(None, || hub.connected(None))?;
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
        match hub.connected(Some(cx.waker())) {
            Some(Ok(shared)) => {
                let hub = Arc::clone(hub);
                Poll::Ready(Ok(Connection::new(hub, shared, this.request_timeout)))
            }
            Some(Err(error)) => Poll::Ready(Err(error)),
            None if hub.is_driven() => Poll::Pending,
            None => Poll::Ready(Err(Error::NoDriver)),
        }
    }
}

/// A connection to a server. Threads and tasks may share it. Dropping it closes it; the server
/// learns of that.
#[derive(Debug)]
pub struct Connection {
    hub: Arc<Hub>,
    shared: Arc<Shared>,
    request_timeout: Option<Duration>,
}

impl Connection {
    fn new(hub: Arc<Hub>, shared: Arc<Shared>, request_timeout: Option<Duration>) -> Self {
        Self {
            hub,
            shared,
            request_timeout,
        }
    }

    /// The server's address, as it was passed to [`connect`].
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// The reason why the connection has ended; `None` while it is open.
    pub fn end(&self) -> Option<End> {
        self.shared.end.get().cloned()
    }

    /// The length of the longest message that the server receives, in bytes.
    pub fn max_message(&self) -> usize {
        let limit = self.hub.remote_limit(&self.shared).unwrap_or_default();
        usize::try_from(limit).unwrap_or(usize::MAX)
    }

    /// A message of `len` zeros, to be filled and sent without a copy.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub fn message(&self, len: usize) -> Result<Message, Error> {
        self.hub.message(self.shared.port, len)
    }

    /// Sends a copy of `bytes`. The future completes when the transport has sent the message: it
    /// waits while the server's window is full.
    ///
    /// # Errors
    /// The future fails with [`Error::TooLarge`] for a message beyond the server's limit, and with
    /// [`Error::Ended`] when the connection has ended.
    pub fn send(&self, bytes: &[u8]) -> Sending<'_> {
        self.sending(self.hub.message_from(self.shared.port, bytes))
    }

    /// Sends a message of this connection.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_message(&self, message: Message) -> Sending<'_> {
        self.sending(Ok(message))
    }

    fn sending(&self, message: Result<Message, Error>) -> Sending<'_> {
        Sending::new(&self.hub, &self.shared, message)
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
    /// may be outstanding. The deadline is that of [`Options::request_timeout`], counted from this
    /// call; [`Response::timeout`] changes it.
    ///
    /// # Errors
    /// The future fails with [`Error::Timeout`] at the deadline, with [`Error::Failed`] if the
    /// server responds with a failure, with [`Error::TooLarge`] for a message beyond the server's
    /// limit, and with [`Error::Ended`] when the connection ends first.
    pub fn request(&self, bytes: &[u8]) -> Response<'_> {
        self.response(self.hub.message_from(self.shared.port, bytes))
    }

    /// Sends a message of this connection as a request.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn request_message(&self, message: Message) -> Response<'_> {
        self.response(Ok(message))
    }

    fn response(&self, message: Result<Message, Error>) -> Response<'_> {
        let timeout = self.request_timeout.unwrap_or_default();
        Response {
            hub: &self.hub,
            shared: &self.shared,
            deadline: self
                .request_timeout
                .and_then(|it| Instant::now().checked_add(it)),
            timeout,
            stage: Stage::Unsent(message),
        }
    }

    /// Runs a future to completion on this thread, which parks while the future is pending. The
    /// future may use this connection, and no other one.
    ///
    /// # Errors
    /// [`Error::Transport`] when the thread cannot wait.
    pub fn run<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.hub.run(future)
    }

    /// Makes this connection's futures work under any executor: see [`Driver`].
    pub fn driver(&self) -> Driver {
        Driver::new(Arc::clone(&self.hub))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// The future of [`Connection::send`]. A future that is dropped takes its message back if the
/// message still waits for the peer's window; otherwise the message is sent.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Sending<'a> {
    hub: &'a Arc<Hub>,
    shared: &'a Shared,
    message: Result<Option<Message>, Error>,
    /// The number of the message while it is queued.
    queued: Option<u64>,
}

impl<'a> Sending<'a> {
    pub(crate) fn new(
        hub: &'a Arc<Hub>,
        shared: &'a Shared,
        message: Result<Message, Error>,
    ) -> Self {
        Self {
            hub,
            shared,
            message: message.map(Some),
            queued: None,
        }
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.queued {
            self.hub.take_back(self.shared, number);
        }
    }
}

impl Step for Sending<'_> {
    type Output = ();

    fn hub(&self) -> &Arc<Hub> {
        self.hub
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Result<(), Error>> {
        let number = match (self.queued, &mut self.message) {
            (Some(number), _) => number,
            (None, Ok(message)) => match self.hub.send(self.shared, message, waker)? {
                Ok(number) => *self.queued.insert(number),
                Err(error) => return Some(Err(error)),
            },
            (None, Err(error)) => return Some(Err(error.clone())),
        };
        let sent = self.hub.sent(self.shared, number, waker)?;
        self.queued = None;
        Some(sent)
    }
}

operation!(Sending<'a>, ());

/// The future of [`Connection::receive`]. A future that is dropped before its completion has taken
/// no message.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Receiving<'a>(&'a Connection);

impl Step for Receiving<'_> {
    type Output = Message;

    fn hub(&self) -> &Arc<Hub> {
        &self.0.hub
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Result<Message, Error>> {
        self.0.hub.receive(&self.0.shared, waker)
    }
}

operation!(Receiving<'a>, Message);

/// The future of [`Connection::request`]. Dropping it cancels the request: the server learns of it.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Response<'a> {
    hub: &'a Arc<Hub>,
    shared: &'a Shared,
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

impl Response<'_> {
    /// Sets the deadline, from now on, in place of [`Options::request_timeout`].
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self.deadline = Instant::now().checked_add(timeout);
        self
    }
}

impl Step for Response<'_> {
    type Output = Message;

    fn hub(&self) -> &Arc<Hub> {
        self.hub
    }

    fn step(&mut self, waker: Option<&Waker>) -> Option<Result<Message, Error>> {
        if let Stage::Unsent(message) = &mut self.stage {
            let message = match std::mem::replace(message, Err(Error::Ended(End::Local))) {
                Ok(message) => message,
                Err(error) => return Some(Err(error)),
            };
            let limit = (self.deadline, self.timeout);
            match self.hub.request(self.shared, message, limit) {
                Ok(id) => self.stage = Stage::Sent(id),
                Err(error) => return Some(Err(error)),
            }
        }
        let Stage::Sent(id) = self.stage else {
            return Some(Err(Error::Ended(End::Local)));
        };
        let outcome = self.hub.outcome(self.shared.key, id, waker)?;
        self.stage = Stage::Done;
        Some(outcome)
    }
}

impl Drop for Response<'_> {
    fn drop(&mut self) {
        if let Stage::Sent(id) = self.stage {
            self.hub.cancel(self.shared.key, id);
        }
    }
}

operation!(Response<'a>, Message);
