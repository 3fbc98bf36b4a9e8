//! The inputs and outputs of a connection's machine, and the peer's violations.

use crate::wire::{Credit, HEADER, Header, Kind};

/// The handle of a payload.
pub(crate) trait Payload {
    /// The length, in bytes.
    fn len(&self) -> usize;
}

/// The largest payload of a frame; longer payloads are announced.
pub(crate) const INLINE_MAX: usize = 4096 - HEADER;

/// Something to post at the endpoint, in the order of the outputs.
#[derive(Debug)]
pub(crate) enum Output<M> {
    /// A frame, with its payload if it has one.
    Frame(Header, Option<M>),
    /// The payload of the announcement with this number.
    Bulk {
        number: u64,
        /// The number of the message, as [`super::Machine::send`] returned it; 0 for other kinds.
        message: u64,
        payload: M,
    },
    /// A receive for the payload of `len` bytes that the peer has announced with this number.
    Receive { number: u64, len: usize },
}

/// Something to report to the application.
#[derive(Debug)]
pub(crate) enum Event<M> {
    /// The response to the request `id`: the payload, or the text of the failure.
    Response { id: u64, outcome: Result<M, M> },
    /// The client no longer expects the response to the request `id`, which the application has
    /// taken.
    Cancelled { id: u64 },
    /// The peer has closed the connection, for the reason in the payload. Everything that it sent
    /// before has arrived.
    Closed(M),
}

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it returned more credit than it had")]
    Credit,
    #[error("it sent more messages than the receiver's window has")]
    Window,
    #[error("it announced {0} bytes, more than the receiver's limit of {1}")]
    TooLarge(u64, u64),
    #[error("it sent a frame of kind {0:?} that its side never sends")]
    Kind(Kind),
    #[error("it used the number {0} for two requests at the same time")]
    Duplicate(u64),
    #[error("it responded to the request {0}, which has no response outstanding")]
    Unexpected(u64),
    #[error("it sent a payload that it had not announced")]
    Unannounced,
    #[error("it sent a payload of {0} bytes and had announced {1}")]
    Length(usize, usize),
}

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// The number of blocks of an announced payload.
pub(super) fn blocks(len: usize) -> u32 {
    u32::try_from(len.div_ceil(4096)).unwrap_or(u32::MAX)
}

impl Credit {
    pub(super) const NONE: Self = Self {
        messages: 0,
        blocks: 0,
    };
}
