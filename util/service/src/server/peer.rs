//! `Peer`: a client of a listener.

use std::fmt;
use std::sync::Arc;

use crate::client::Sending;
use crate::hub::{Hub, Shared};
use crate::{End, Error, Message};

/// A client of a [`crate::Listener`]. It is a handle: clones name the same client.
#[derive(Clone)]
pub struct Peer {
    pub(super) hub: Arc<Hub>,
    pub(super) shared: Arc<Shared>,
}

impl Peer {
    pub(super) const fn new(hub: Arc<Hub>, shared: Arc<Shared>) -> Self {
        Self { hub, shared }
    }

    /// The address that the transport reports for the client. It does not prove who the client is.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// The reason why the connection has ended; `None` while it is open.
    pub fn end(&self) -> Option<End> {
        self.shared.end.get().cloned()
    }

    /// A message of `len` zeros, to be filled and sent without a copy.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub fn message(&self, len: usize) -> Result<Message, Error> {
        self.hub.message(self.shared.port, len)
    }

    /// Sends a copy of `bytes` to the client: see [`crate::Connection::send`].
    ///
    /// # Errors
    /// As [`crate::Connection::send`].
    pub fn send(&self, bytes: &[u8]) -> Sending<'_> {
        self.sending(self.hub.message_from(self.shared.port, bytes))
    }

    /// Sends a message of [`Self::message`] to the client.
    ///
    /// # Errors
    /// As [`crate::Connection::send`].
    pub fn send_message(&self, message: Message) -> Sending<'_> {
        self.sending(Ok(message))
    }

    fn sending(&self, message: Result<Message, Error>) -> Sending<'_> {
        Sending::new(&self.hub, &self.shared, message)
    }

    /// Closes the connection.
    pub fn close(&self) {
        self.hub.end(&self.shared);
    }
}

impl PartialEq for Peer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Peer {}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.address())
    }
}
