//! `Listener`: a server's side, with the events of all of its clients.

mod request;
mod serve;

pub use self::request::Request;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;

use crate::executor::{Driver, Step, operation};
use crate::hub::{Access, Change, Hub, Report};
use crate::port::Buffers;
use crate::{End, Error, Message, Options, Peer};

/// A server: it listens at addresses and reports what its clients do. Threads and tasks may share
/// it. Dropping it closes all connections.
#[derive(Debug)]
pub struct Listener {
    hub: Arc<Hub>,
    /// The number of messages that [`Self::serve`] has dropped.
    dropped: AtomicU64,
}

/// Something that a client has done. Events of one client come in their order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A client has connected.
    Connected(Peer),
    /// A client has sent a message without a request.
    Message(Peer, Message),
    /// A client has sent a request.
    Request(Request),
    /// A client's connection has ended. It is the last event of the client.
    Lost(Peer, End),
}

impl Listener {
    /// Listens at an address, or at several that are separated by commas, with the default options.
    ///
    /// # Errors
    /// [`Error::Address`] for an address that is taken or unusable.
    pub fn bind(addresses: &str) -> Result<Self, Error> {
        Self::bind_with(addresses, &Options::new())
    }

    /// As [`Self::bind`], with options.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_with(addresses: &str, options: &Options) -> Result<Self, Error> {
        let hub = Hub::listen(addresses, options)?;
        let dropped = AtomicU64::new(0);
        Ok(Self { hub, dropped })
    }

    /// The addresses, with the ports that the system has chosen for `tcp://HOST:0`.
    ///
    /// # Errors
    /// [`Error::Transport`] when an endpoint has no address.
    pub fn addresses(&self) -> Result<Vec<String>, Error> {
        self.hub.addresses()
    }

    /// The next event. A future that is dropped before its completion has taken no event.
    ///
    /// # Errors
    /// The future fails with [`Error::Transport`] when a transport has failed.
    pub fn event(&self) -> NextEvent<'_> {
        NextEvent(self)
    }

    /// The next event, if there is one. The call makes progress, and does not wait.
    ///
    /// # Errors
    /// As [`Self::event`].
    pub fn try_event(&self) -> Result<Option<Event>, Error> {
        self.hub.poll();
        self.hub.sweep();
        let hub = &self.hub;
        hub.with(|access| self.event().step(access, None))
            .transpose()
    }

    /// Makes this listener's futures work under any executor: see [`Driver`].
    pub fn driver(&self) -> Driver {
        Driver::new(Arc::clone(&self.hub))
    }

    /// Buffers that can be lent to the clients.
    pub(crate) fn lendable_buffers(&self) -> Buffers {
        self.hub.lendable_buffers()
    }

    /// Waits until the clients have given back what was lent to them, for a bounded time.
    pub(crate) fn await_lent(&self) {
        if let Err(error) = self.hub.await_lent() {
            log::debug!("clients keep lent messages: {error}");
        }
    }

    fn event_of(&self, report: Report) -> Event {
        let peer = |shared| Peer::new(Arc::clone(&self.hub), shared);
        match report {
            Report::Change(Change::Connected(shared)) => Event::Connected(peer(shared)),
            Report::Change(Change::Lost(shared, end)) => Event::Lost(peer(shared), end),
            Report::Message(shared, message) => Event::Message(peer(shared), message),
            Report::Request(shared, incoming) => {
                Event::Request(Request::new(peer(shared), incoming))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// The future of [`Listener::event`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited or waited for"]
pub struct NextEvent<'a>(&'a Listener);

impl<'a> Step<'a> for NextEvent<'a> {
    type Output = Event;

    fn hub(&self) -> &'a Arc<Hub> {
        &self.0.hub
    }

    fn step(
        &mut self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<Event, Error>> {
        let report = access.next_report(waker)?;
        Some(report.map(|report| self.0.event_of(report)))
    }
}

operation!(NextEvent<'a>, Event);
