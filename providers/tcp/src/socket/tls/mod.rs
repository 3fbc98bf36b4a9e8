//! TLS 1.3 over the connections of an endpoint: who we are and whom we believe ([`Identity`]), the
//! records of one connection ([`Session`]), and how an end in TLS and one without tell each other so.
//!
//! It is between the socket and everything else: greetings, proofs of an authorization key and
//! frames are what they are without it. Both ends show a certificate, and both check the other's.
//! Nothing is resumed: each connection is made with certificates that are good at the time.

#[cfg(feature = "tls")]
mod identity;
#[cfg(feature = "tls")]
mod session;
#[cfg(not(feature = "tls"))]
mod stub;

use std::io;

#[cfg(feature = "tls")]
pub(crate) use identity::{Identity, identity};
#[cfg(feature = "tls")]
pub(crate) use session::Session;
#[cfg(not(feature = "tls"))]
pub(crate) use stub::{Identity, Session, identity};

/// How a connection in TLS begins: with a record of the handshake, of any release.
pub(crate) const HANDSHAKE_RECORD: [u8; 2] = [22, 3];
/// What tells a caller in TLS that there is none here: the alert `handshake_failure`.
pub(crate) const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// How an end in TLS answers what is none: with an alert.
pub(crate) const ALERT: [u8; 5] = [21, 3, 3, 0, 2];

/// Whether TLS is what a connection has failed over: trying again does not help.
pub(crate) fn is_tls_error(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::InvalidData
}

/// The peer speaks TLS, and we do not.
pub(crate) fn unexpected_tls() -> io::Error {
    let text = "it speaks TLS, which is off here (FI_TCP_TLS)";
    io::Error::new(io::ErrorKind::InvalidData, text)
}
