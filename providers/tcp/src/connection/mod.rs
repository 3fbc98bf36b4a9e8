//! `Connection`: a connection with one peer, from the first wish to have one to its end.

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
    /// When the connection began to be wanted.
    pub(crate) since: Instant,
    /// Since when the peer's host has the connection and its program says nothing.
    pub(crate) response_wait: Option<ResponseWait>,
    /// Private data of the request for the connection, if it is ours.
    request: Vec<u8>,
    /// What has come of the peer's proof, and then of its greeting.
    pub(crate) handshake_input: Vec<u8>,
    pub(crate) proof: Option<proof::Client>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// What the socket is watched for.
    watched: EpollFlags,
    /// The peer is gone, and its last messages have no place yet.
    pub(crate) is_draining: bool,
    /// Why nothing can be sent any more, when what has come is taken first.
    pub(crate) send_error: Option<std::io::Error>,
}

/// The name of a connection: its place, and a number that tells it from others that had that place
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// How far a connection has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer was not there; it is tried again.
    Retrying {
        until: Instant,
    },
    /// The system connects.
    Connecting {
        until: Instant,
    },
    /// The ends shake hands in TLS.
    ///
    /// From here on the peer's program answers, when it makes progress or accepts. That time is not
    /// the network's, and [`ResponseWait`] limits it only on request. The keepalive notices a host that
    /// dies meanwhile.
    TlsHandshake,
    /// The peer was asked whether it has the authorization key, and has not answered.
    Authenticating,
    /// The peer was greeted and has not answered.
    AwaitingResponse,
    Up,
}

/// The wait for the first answer of a peer whose host has taken the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseWait {
    pub(crate) since: Instant,
    /// When the next warning is due, or the error.
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

    /// When something has to be done about the connection though nothing comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Retrying { until } | Stage::Connecting { until } => Some(until),
            Stage::TlsHandshake | Stage::Authenticating | Stage::AwaitingResponse => {
                Some(self.response_wait?.until)
            }
            Stage::Up => None,
        }
    }

    /// Whether its socket has something to send that the queue does not have.
    fn has_unsent_records(&self) -> bool {
        self.socket.as_ref().is_some_and(Socket::has_unsent_records)
    }

    /// Whether something has come that the system is not going to tell of any more.
    #[inline]
    fn has_buffered_input(&self) -> bool {
        self.socket.as_ref().is_some_and(Socket::has_buffered_input)
    }

    /// Whether frames of it have to be taken though the system does not tell of any.
    #[inline]
    pub(crate) fn has_to_resume(&self) -> bool {
        self.incoming.is_stalled() || self.is_draining || self.has_buffered_input()
    }

    /// What the socket is to be watched for.
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

    /// Sends what the kernel takes.
    ///
    /// # Errors
    /// When the connection has ended, or has to.
    #[inline]
    pub(crate) fn flush(&mut self, keys: &Keys, ep: &Ep) -> Result<(), SendError> {
        match &mut self.socket {
            Some(socket) => self.outgoing.flush(socket, keys, ep),
            None => Ok(()),
        }
    }

    /// Asks for a message that the peer offers.
    pub(crate) fn send_cts(&mut self, id: u8, posted: Option<Posted>, env: Envelope) {
        self.incoming.requested.insert(id, (posted, env));
        self.outgoing.queue_response(&Header::Cts { id }, &[]);
    }
}
