//! `Error`: what a call of this crate can fail with, and `End`: why a connection has ended.

use std::time::Duration;

/// The reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// This side has closed the connection.
    #[error("this side has closed the connection")]
    Local,
    /// The peer has closed the connection.
    #[error("the peer has closed the connection")]
    Remote,
    /// The peer has died, or the network to it was interrupted. The text is the provider's.
    #[error("the peer is lost: {0}")]
    Lost(String),
    /// The peer has violated the protocol, and this side has closed the connection.
    #[error("the peer has violated the protocol: {0}")]
    Violation(String),
    /// The peer has closed the connection because of what this side had sent.
    #[error("the peer has ended the connection: {0}")]
    Refused(String),
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be used.
    #[error("address {address:?}: {reason}")]
    Address {
        /// The address.
        address: String,
        /// The reason, and the remedy.
        reason: String,
    },
    /// The transport cannot be opened, or cannot be waited for.
    #[error("{0}")]
    Transport(String),
    /// No server has responded within the time.
    #[error("no server has responded at {address} within {timeout:?}: {reason}")]
    NoServer {
        /// The address.
        address: String,
        /// The time.
        timeout: Duration,
        /// The result of the last attempt.
        reason: String,
    },
    /// The server has another version of the protocol.
    #[error(
        "the server at {address} has version {remote} of the protocol, and this program has \
         version {local}: build both with the same version of selvedge-service"
    )]
    Version {
        /// The address.
        address: String,
        /// The version of this program.
        local: u32,
        /// The version of the server.
        remote: u32,
    },
    /// A message is longer than the peer accepts.
    #[error(
        "a message of {len} bytes exceeds the peer's limit of {limit}: raise \
         `Options::max_message` of the peer, or send it in parts"
    )]
    TooLarge {
        /// The length, in bytes.
        len: usize,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The time is over. A request is cancelled, and the server learns of it.
    #[error("no result within {0:?}")]
    Timeout(Duration),
    /// The connection has ended.
    #[error(transparent)]
    Ended(#[from] End),
    /// The server has responded that the request failed. The text is the server's.
    #[error("the server failed: {0}")]
    Failed(String),
    /// The bytes of a message are no value of the type.
    #[error(
        "a message of {len} bytes cannot be decoded as {type_name}: {reason}; build both sides with \
         the same type"
    )]
    Decode {
        /// The type.
        type_name: &'static str,
        /// The length of the message, in bytes.
        len: usize,
        /// The reason.
        reason: String,
    },
    /// A publication has no such bytes.
    #[error(
        "a publication of {len} bytes has no {count} bytes at {offset}: compare its length first"
    )]
    Range {
        /// The length of the publication, in bytes.
        len: usize,
        /// The offset of the first byte.
        offset: usize,
        /// The number of bytes.
        count: usize,
    },
    /// A value cannot be encoded.
    #[error("a value of the type {type_name} cannot be encoded: {reason}")]
    Encode {
        /// The type.
        type_name: &'static str,
        /// The reason.
        reason: String,
    },
    /// No executor drives the connection.
    #[error(
        "no executor drives the future: call `wait`, run it by `run`, enable the feature `tokio`, \
         or drive the connection by its `Driver`"
    )]
    NoDriver,
}

impl Error {
    /// The error of a transport.
    pub(crate) fn transport(error: impl Into<selvedge::Error>) -> Self {
        Self::Transport(error.into().to_string())
    }

    /// The error of an operation of a transport.
    pub(crate) fn operation(operation: &str, errno: selvedge::Errno) -> Self {
        Self::Transport(format!("{operation}: {errno}"))
    }
}
