//! `Body`: the payload of a message inside a connection.

use selvedge::owned::{Buf, SharedBuf, View};

use super::Message;
use crate::Error;
use crate::machine::Payload;
use crate::port::Port;
use crate::wire::HEADER;

/// The payload of a message inside a connection. Each has the room for a header in front.
#[derive(Debug)]
pub(crate) enum Body {
    /// A message in memory that belongs to it.
    Message(Message),
    /// A publication, which other connections send from the same memory.
    Shared(SharedBuf),
    /// A publication in memory of the peer.
    Lent(View),
}

impl Body {
    /// The payload that a lending receive has received; `None` for one without room for a header.
    pub(crate) fn received(buf: Buf) -> Option<Self> {
        let view = View::from(buf);
        if view.len() < HEADER {
            return None;
        }
        Some(match view.into_buf() {
            Ok(buf) => Self::Message(Message::new(buf)),
            Err(view) => Self::Lent(view),
        })
    }

    /// The payload as a message: a copy, if other connections or the peer use the memory.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory, or when the peer has ended the connection and
    /// may reuse its memory.
    pub(crate) fn into_message(self, port: &Port) -> Result<Message, Error> {
        match self {
            Self::Message(message) => Ok(message),
            Self::Shared(shared) => port.message_from(shared.get(HEADER..).unwrap_or_default()),
            Self::Lent(view) => {
                let mut message = port.message(view.len().saturating_sub(HEADER))?;
                let copied = view.copy_to(HEADER, &mut message);
                copied.map_err(|errno| Error::operation("copy of a lent message", errno))?;
                Ok(message)
            }
        }
    }

    /// The payload, and the room for a header in front, to be read in place; `None` for one that is
    /// still sent.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub(crate) fn into_view(self, port: &Port) -> Result<Option<View>, Error> {
        Ok(match self {
            Self::Message(message) => Some(port.pooled(message.into_bulk())?.into()),
            Self::Shared(shared) => shared.into_buf().ok().map(View::from),
            Self::Lent(view) => Some(view),
        })
    }

    /// The payload as a text, such as the reason of a failure.
    pub(crate) fn to_text(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match self {
            Self::Message(message) => text(message),
            Self::Shared(shared) => text(shared.get(HEADER..).unwrap_or_default()),
            Self::Lent(view) => {
                let bytes = view.to_vec().unwrap_or_default();
                text(bytes.get(HEADER..).unwrap_or_default())
            }
        }
    }
}

impl From<Message> for Body {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

impl Payload for Body {
    fn len(&self) -> usize {
        match self {
            Self::Message(message) => message.len(),
            Self::Shared(shared) => shared.len().saturating_sub(HEADER),
            Self::Lent(view) => view.len().saturating_sub(HEADER),
        }
    }
}
