//! Typed messages and requests to a peer.

use super::peer::Peer;
use super::sending::Sending;

#[cfg(feature = "postcard")]
impl Peer {
    /// Sends a value in the format of postcard, which [`crate::Message::decode`] decodes.
    ///
    /// # Errors
    /// As [`Self::send`]; [`crate::Error::Encode`] for a value that cannot be encoded.
    pub fn send_value<T: serde::Serialize + ?Sized>(&self, value: &T) -> Sending<'_> {
        self.sending(self.message_of(value))
    }

    /// A message with a value in the format of postcard.
    ///
    /// # Errors
    /// [`crate::Error::Encode`]; [`crate::Error::Transport`] when there is no memory.
    pub fn message_of<T: serde::Serialize + ?Sized>(
        &self,
        value: &T,
    ) -> Result<crate::Message, crate::Error> {
        crate::Message::encoded(value, |len| self.message(len))
    }
}

#[cfg(feature = "postcard")]
impl super::client::Connection {
    /// Sends a value as a request, in the format of postcard; [`crate::Request::message`] is the
    /// server's side.
    ///
    /// # Errors
    /// As [`Self::request`]; [`crate::Error::Encode`] for a value that cannot be encoded.
    pub fn request_value<T: serde::Serialize + ?Sized>(
        &self,
        value: &T,
    ) -> super::response::Response<'_> {
        self.response(self.message_of(value))
    }
}

#[cfg(feature = "bytemuck")]
impl Peer {
    /// Sends a copy of plain values in this machine's byte order, which
    /// [`crate::Message::plain_slice`] reads. [`crate::Message::plain_slice_mut`] fills a message
    /// without a copy.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn send_plain<T: bytemuck::NoUninit>(&self, values: &[T]) -> Sending<'_> {
        self.send(bytemuck::cast_slice(values))
    }
}
