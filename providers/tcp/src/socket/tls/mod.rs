//! TLS 1.3 for the connections of an endpoint: the local certificate and the trusted authorities
//! ([`Identity`]), the records of one connection ([`Session`]), and the detection of peers whose
//! TLS setting differs.
//!
//! TLS is the layer directly above the socket: hello messages, proofs of an authorization key and
//! frames are the same with and without TLS. Each side presents a certificate and checks the
//! certificate of the other. Sessions are never resumed, so every connection checks certificates
//! that are valid at that time.

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

/// The first two bytes of a TLS connection: a handshake record, of any version.
pub(crate) const HANDSHAKE_RECORD: [u8; 2] = [22, 3];
/// The alert `handshake_failure`, which reports to a TLS client that TLS is off.
pub(crate) const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// The first bytes of the TLS alert that a TLS server sends in response to plaintext.
pub(crate) const ALERT: [u8; 5] = [21, 3, 3, 0, 2];

/// Whether a connection failed because of TLS, so that retrying cannot help.
pub(crate) fn is_tls_error(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::InvalidData
}

/// Returns the error for a peer that uses TLS while this endpoint does not.
pub(crate) fn unexpected_tls() -> io::Error {
    let text = "the peer uses TLS, which is off at this endpoint (FI_TCP_TLS)";
    io::Error::new(io::ErrorKind::InvalidData, text)
}
