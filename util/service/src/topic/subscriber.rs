//! `Subscriber`: takes the publications of a topic in their order.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use super::publication::Publication;
use crate::connection::{Connecting, Connection, connect_with};
use crate::executor::{Step, operation};
use crate::hub::{Access, Hub};
use crate::message::Body;
use crate::port::Port;
use crate::{Error, Options};

/// The number of requests that a subscriber keeps outstanding: publications that the publisher
/// sends before the subscriber takes the first of them.
pub(super) const REQUESTS: usize = 4;

/// The first publication that a subscriber receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// The oldest one that the publisher has kept.
    #[default]
    History,
    /// The first one after the subscription.
    Now,
}

impl Start {
    /// The start in a subscriber's request. Anything but the known value is the default.
    pub(super) fn parse(request: &[u8]) -> Self {
        match request {
            [1] => Self::Now,
            _ => Self::History,
        }
    }

    fn encode(self) -> [u8; 1] {
        match self {
            Self::History => [0],
            Self::Now => [1],
        }
    }
}

/// Subscribes to the topic of a publisher, from its history on. The publisher may start later,
/// within [`Options::connect_timeout`].
///
/// # Errors
/// As [`crate::connect`].
pub fn subscribe(addresses: &str) -> Subscribing {
    subscribe_with(addresses, Start::default(), &Options::new())
}

/// As [`subscribe`], with the first publication and options.
///
/// # Errors
/// As [`crate::connect`].
pub fn subscribe_with(addresses: &str, start: Start, options: &Options) -> Subscribing {
    Subscribing {
        connecting: connect_with(addresses, &options.lending()),
        start,
    }
}

/// The future of [`subscribe`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct Subscribing {
    connecting: Connecting,
    start: Start,
}

impl Subscribing {
    /// Blocks the thread until there is a result.
    ///
    /// # Errors
    /// As the future.
    pub fn wait(self) -> Result<Subscriber, Error> {
        Subscriber::new(self.connecting.wait()?, self.start)
    }
}

impl Future for Subscribing {
    type Output = Result<Subscriber, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let connection = ready!(Pin::new(&mut self.connecting).poll(cx))?;
        Poll::Ready(Subscriber::new(connection, self.start))
    }
}

/// A subscriber of a [`crate::Publisher`]. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscriber {
    connection: Connection,
    cursor: Cursor,
}

/// The progress of a subscription.
#[derive(Debug)]
struct Cursor {
    start: Start,
    /// The numbers of outstanding requests, in the order of their responses.
    requests: VecDeque<u64>,
    /// The number of the next publication, if none is lost.
    expected: Option<u64>,
}

impl Subscriber {
    fn new(connection: Connection, start: Start) -> Result<Self, Error> {
        connection.hub.accept_lent(&connection.shared);
        let mut cursor = Cursor {
            start,
            requests: VecDeque::new(),
            expected: None,
        };
        let hub = &connection.hub;
        hub.with(|access| cursor.fill_requests(access, &connection))?;
        Ok(Self { connection, cursor })
    }

    /// Takes the next publication. A future that is dropped before its completion has taken none.
    ///
    /// # Errors
    /// The future fails with [`Error::Ended`] when the publisher is lost, and with [`Error::Failed`]
    /// for a publication beyond [`Options::max_message`].
    pub fn receive(&mut self) -> NextPublication<'_> {
        let Self { connection, cursor } = self;
        NextPublication { connection, cursor }
    }
}

impl Cursor {
    fn fill_requests(
        &mut self,
        access: &mut Access<'_>,
        connection: &Connection,
    ) -> Result<(), Error> {
        while self.requests.len() < REQUESTS {
            let request = connection.message_from(&self.start.encode())?;
            let id = access.request(&connection.shared, request, None)?;
            self.requests.push_back(id);
        }
        Ok(())
    }

    fn take(&mut self, body: Body, port: &Port) -> Result<Publication, Error> {
        let expected = self.expected;
        let lost = |number: u64| expected.map_or(0, |expected| number.saturating_sub(expected));
        let publication = Publication::new(body.into_view(port)?, lost)?;
        self.expected = Some(publication.number().saturating_add(1));
        Ok(publication)
    }
}

/// The future of [`Subscriber::receive`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct NextPublication<'a> {
    connection: &'a Connection,
    cursor: &'a mut Cursor,
}

impl<'a> Step<'a> for NextPublication<'a> {
    type Output = Publication;

    fn hub(&self) -> &'a Arc<Hub> {
        &self.connection.hub
    }

    fn step(
        &mut self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<Publication, Error>> {
        let Self { connection, cursor } = self;
        if let Err(error) = cursor.fill_requests(access, connection) {
            return Some(Err(error));
        }
        let id = *cursor.requests.front()?;
        let outcome = access.outcome(connection.shared.key, id, waker)?;
        cursor.requests.pop_front();
        Some(outcome.and_then(|body| {
            let publication = cursor.take(body, access.port(&connection.shared))?;
            // The publisher may send the next one while the application handles this one. An error
            // is that of the next call.
            let _ = cursor.fill_requests(access, connection);
            Ok(publication)
        }))
    }
}

operation!(NextPublication<'a>, Publication);
