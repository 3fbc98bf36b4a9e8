//! `Connection`: a connection with one peer, from the first attempt to its end.

pub(crate) mod delivery;
pub(crate) mod failure;
pub(crate) mod handshake;
pub(crate) mod incoming;
pub(crate) mod one_sided;
pub(crate) mod operation;
pub(crate) mod outgoing;
pub(crate) mod receive;
pub(crate) mod table;
pub(crate) mod tx;
pub(crate) mod unacked;

use std::time::Instant;

use nix::sys::epoll::EpollFlags;
use selvedge_kit::Ep;
use selvedge_kit::mr::Keys;
use selvedge_kit::srx::{Envelope, Posted};

use crate::connection::incoming::Incoming;
use crate::connection::outgoing::Outgoing;
use crate::connection::tx::SendError;
use crate::socket::Socket;
use crate::wire::frame::Header;
use crate::wire::hello::Negotiated;
use crate::wire::proof;

/// A connection with a peer.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: Id,
    /// The index of the peer.
    pub(crate) peer: usize,
    pub(crate) socket: Option<Socket>,
    pub(crate) stage: Stage,
    /// The start time of the first attempt.
    pub(crate) since: Instant,
    /// The wait for the first response of a peer whose host has accepted the connection.
    pub(crate) response_wait: Option<ResponseWait>,
    /// Private data of the request, if this endpoint requests the connection.
    request: Vec<u8>,
    /// Received bytes of the peer's proof, and then of its hello message.
    pub(crate) handshake_input: Vec<u8>,
    pub(crate) proof: Option<proof::Client>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// The epoll events that are enabled for the socket.
    watched: EpollFlags,
    /// Whether the peer has closed the connection, and messages of the peer are still held.
    pub(crate) is_draining: bool,
    /// The send error, kept while received messages are still delivered.
    pub(crate) send_error: Option<std::io::Error>,
}

/// The identity of a connection: its index, and a serial number that distinguishes it from earlier
/// connections with that index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The last attempt failed; the next one is at `until`.
    Retrying {
        until: Instant,
    },
    /// connect(2) is in progress.
    Connecting {
        until: Instant,
    },
    /// The TLS handshake is in progress.
    ///
    /// From this stage on, the peer's program responds when it makes progress or accepts the
    /// request. The response time does not depend on the network; [`ResponseWait`] limits it only
    /// if `FI_TCP_ANSWER_TIMEOUT` is set. The TCP keepalive detects a host that fails meanwhile.
    TlsHandshake,
    /// The proof of the authorization key is in progress.
    Authenticating,
    /// The hello request was sent, and the response has not arrived.
    AwaitingResponse,
    Up,
}

/// The wait for the first response of a peer whose host has accepted the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseWait {
    pub(crate) since: Instant,
    /// The time of the next warning, or of the error.
    pub(crate) until: Instant,
}

impl Connection {
    fn new(id: Id, peer: usize, stage: Stage, request: Vec<u8>, now: Instant) -> Self {
        Self {
            id,
            peer,
            socket: None,
            stage,
            since: now,
            response_wait: None,
            request,
            handshake_input: Vec::new(),
            proof: None,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            watched: EpollFlags::empty(),
            is_draining: false,
            send_error: None,
        }
    }

    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.stage == Stage::Up
    }

    pub(crate) const fn negotiated(&self) -> &Negotiated {
        &self.outgoing.negotiated
    }

    /// The time at which the connection must be checked even without an event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Retrying { until } | Stage::Connecting { until } => Some(until),
            Stage::TlsHandshake | Stage::Authenticating | Stage::AwaitingResponse => {
                Some(self.response_wait?.until)
            }
            Stage::Up => None,
        }
    }

    /// Whether the TLS session has records to send.
    fn has_unsent_records(&self) -> bool {
        self.socket.as_ref().is_some_and(Socket::has_unsent_records)
    }

    /// Whether input is buffered in the TLS session, for which epoll(7) reports no event.
    #[inline]
    fn has_buffered_input(&self) -> bool {
        self.socket.as_ref().is_some_and(Socket::has_buffered_input)
    }

    /// Whether the connection must be read again without an event.
    #[inline]
    pub(crate) fn has_to_resume(&self) -> bool {
        self.incoming.is_stalled() || self.is_draining || self.has_buffered_input()
    }

    /// The epoll events that the connection needs.
    fn interest(&self) -> EpollFlags {
        match self.stage {
            Stage::Retrying { .. } => EpollFlags::empty(),
            Stage::Connecting { .. } => EpollFlags::EPOLLOUT,
            Stage::TlsHandshake if self.has_unsent_records() => {
                EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT
            }
            Stage::TlsHandshake | Stage::Authenticating | Stage::AwaitingResponse => {
                EpollFlags::EPOLLIN
            }
            Stage::Up => {
                let mut flags = EpollFlags::EPOLLRDHUP;
                flags.set(EpollFlags::EPOLLIN, !self.incoming.is_stalled());
                flags.set(EpollFlags::EPOLLOUT, self.outgoing.tx.is_blocked);
                flags
            }
        }
    }

    /// Sends as many queued frames as the kernel takes.
    ///
    /// # Errors
    /// When the connection has ended, or must end.
    #[inline]
    pub(crate) fn flush(&mut self, keys: &Keys, ep: &Ep) -> Result<(), SendError> {
        match &mut self.socket {
            Some(socket) => self.outgoing.flush(socket, keys, ep),
            None => Ok(()),
        }
    }

    /// Requests the bytes of an RTS of the peer.
    pub(crate) fn send_cts(&mut self, id: u8, posted: Option<Posted>, env: Envelope) {
        self.incoming.requested.insert(id, (posted, env));
        self.outgoing.queue_response(&Header::Cts { id }, &[]);
    }
}
