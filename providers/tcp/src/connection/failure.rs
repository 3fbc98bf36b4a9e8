//! `Failure`: the reason why a connection ended, for completions, events and the log.

use std::io;

use selvedge::Errno;
use selvedge_kit::rate_limit::warn_limited;

use crate::config::CONTROL;
use crate::peers::Peer;
use crate::socket::tls::is_tls_error;

/// The reason why a connection ended or was not established.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    pub(crate) detail: String,
    /// Private data of a peer that has rejected the connection.
    pub(crate) data: Vec<u8>,
}

impl Failure {
    pub(crate) fn new(errno: Errno, detail: impl Into<String>) -> Self {
        Self {
            errno,
            detail: detail.into(),
            data: Vec::new(),
        }
    }

    /// The failure of an established connection that has ended; `result` is `Ok` if the peer has
    /// closed the connection.
    pub(crate) fn ended(peer: &Peer, result: io::Result<()>) -> Self {
        let Err(cause) = result else {
            let detail = format!("{peer} has closed the connection");
            return Self::new(Errno::ConnReset, detail);
        };
        let detail = format!("the connection with {peer} is lost: {cause}");
        if is_tls_error(&cause) {
            warn_limited(CONTROL, format_args!("{detail}"));
        }
        Self::new(errno_of(&cause, Errno::ConnReset), detail)
    }

    /// The failure of a connection whose peer has violated the protocol.
    pub(crate) fn protocol_error(peer: &Peer, reason: &str) -> Self {
        let detail = format!("{peer} is disconnected: it sent {reason}");
        warn_limited(CONTROL, format_args!("{detail}"));
        Self::new(Errno::ConnReset, detail)
    }

    /// The failure to reach a peer within its timeout.
    pub(crate) fn unreachable(peer: &Peer, cause: &io::Error) -> Self {
        let detail = format!("{peer} cannot be reached: {cause}");
        Self::new(errno_of(cause, Errno::ConnRefused), detail)
    }

    /// The failure to establish a connection that the application requested.
    pub(crate) fn not_connected(peer: &Peer, cause: &io::Error) -> Self {
        let errno = match cause.kind() {
            io::ErrorKind::TimedOut => Errno::TimedOut,
            _ => cause
                .raw_os_error()
                .map_or(Errno::ConnRefused, Errno::from_raw),
        };
        Self::new(errno, format!("no connection with {peer}: {cause}"))
    }
}

fn errno_of(cause: &io::Error, default: Errno) -> Errno {
    match cause.kind() {
        io::ErrorKind::TimedOut => Errno::TimedOut,
        io::ErrorKind::HostUnreachable => Errno::HostUnreach,
        io::ErrorKind::NetworkUnreachable => Errno::NetUnreach,
        _ => default,
    }
}
