//! `Peer`: the other side of a connection.

use std::fmt;
use std::sync::Arc;

use selvedge::PeerCredentials;

use super::sending::Sending;
use crate::hub::{Hub, Shared};
use crate::{End, Error, Message};

/// The other side of a connection: a client of a [`crate::Listener`], or the server of a
/// [`crate::Connection`]. It is a handle: clones name the same peer.
#[derive(Clone)]
pub struct Peer {
    pub(crate) hub: Arc<Hub>,
    pub(crate) shared: Arc<Shared>,
}

impl Peer {
    pub(crate) const fn new(hub: Arc<Hub>, shared: Arc<Shared>) -> Self {
        Self { hub, shared }
    }

    /// A server's address as it was passed to [`crate::connect`]; a client's address as the
    /// transport reports it, which does not prove who the client is.
    pub fn address(&self) -> &str {
        &self.shared.address
    }

    /// The facts about the peer that the kernel or a certificate authority vouches for; `None`
    /// where neither does, as over TCP without TLS, and over a fabric (`ofi://`), where each client
    /// states its own address.
    ///
    /// Over shared memory it is the process, and its user is always that of this process: others
    /// are refused. With TLS it is the verified certificate. An address that the peer states is
    /// vouched for by neither.
    pub fn identity(&self) -> Option<&PeerCredentials> {
        self.shared.identity.as_ref()
    }

    /// The reason why the connection has ended; `None` while it is open.
    pub fn end(&self) -> Option<End> {
        self.shared.end.get().cloned()
    }

    /// The length of the longest message that the peer receives, in bytes.
    pub fn max_message(&self) -> usize {
        usize::try_from(self.shared.remote_limit).unwrap_or(usize::MAX)
    }

    /// A message of `len` zeros, to be filled and sent without a copy.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub fn message(&self, len: usize) -> Result<Message, Error> {
        self.hub.message(self.shared.port, len)
    }

    /// A message with a copy of `bytes`.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub fn message_from(&self, bytes: &[u8]) -> Result<Message, Error> {
        self.hub.message_from(self.shared.port, bytes)
    }

    /// Sends a copy of `bytes`. The future completes when the transport has sent the message: it
    /// waits while the peer's window is full.
    ///
    /// # Errors
    /// The future fails with [`Error::TooLarge`] for a message beyond the peer's limit, and with
    /// [`Error::Ended`] when the connection has ended.
    pub fn send(&self, bytes: &[u8]) -> Sending<'_> {
        self.sending(self.message_from(bytes))
    }

    /// Sends a message of [`Self::message`].
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_message(&self, message: Message) -> Sending<'_> {
        self.sending(Ok(message))
    }

    pub(super) fn sending(&self, message: Result<Message, Error>) -> Sending<'_> {
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
