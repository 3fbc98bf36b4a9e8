//! The handshake of a connection that we ask for: the system connects, the ends shake hands in TLS,
//! prove that they have the authorization key, and greet each other. It moves on as the peer answers,
//! and ends with the peer's greeting or with the reason why there is none.

use std::io;
use std::time::{Duration, Instant};

use selvedge_kit::rate_limit::warn_limited;

use crate::config::{CONTROL, Config};
use crate::connection::{Connection, ResponseWait, Stage};
use crate::peers::Peer;
use crate::socket::is_not_ready;
use crate::socket::tls::{ALERT, Identity, is_tls_error, unexpected_tls};
use crate::wire::ProtocolError;
use crate::wire::hello::{Extension, Hello, Kind};
use crate::wire::proof::{self, ClientStep};

/// Who greets whom, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) extension: Extension,
    pub(crate) peer: &'a Peer,
    /// Whether the endpoint has no connections for its application.
    pub(crate) is_rdm: bool,
}

/// How far a handshake has got.
#[derive(Debug)]
pub(crate) enum HandshakeStep {
    /// Nothing has come.
    Idle,
    Progressed,
    /// The peer has answered the greeting.
    Complete(Hello),
}

/// Why a handshake has ended.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The peer is not there, or has no room: it may be tried again, for so long since the first try.
    Retry(io::Error, Duration),
    /// The peer is not the right one: there is no use in trying again.
    Fatal(String),
}

impl HandshakeError {
    /// The peer could not be reached.
    pub(crate) fn unreachable(config: &Config, cause: io::Error) -> Self {
        Self::Retry(cause, config.peer_timeout)
    }
}

impl Connection {
    /// Moves the handshake on with what has come.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn continue_handshake(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        match self.stage {
            Stage::Retrying { .. } | Stage::Up => Ok(HandshakeStep::Idle),
            Stage::Connecting { .. } => self.on_connected(context),
            Stage::TlsHandshake => self.continue_tls(context),
            Stage::Authenticating => self.on_proof_input(context),
            Stage::AwaitingResponse => self.on_hello_input(context),
        }
    }

    /// The system has connected, or failed to.
    fn on_connected(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        let Some(socket) = &self.socket else {
            return Ok(HandshakeStep::Idle);
        };
        let on_connected = socket.finish_connect();
        // An endpoint without connections answers by itself; for one with, a program accepts.
        self.response_wait = context.is_rdm.then(|| {
            let since = Instant::now();
            let until = since + context.config.next_response_check(Duration::ZERO);
            ResponseWait { since, until }
        });
        on_connected.map_err(|cause| HandshakeError::unreachable(context.config, cause))?;
        match &context.config.tls {
            None => self.authenticate(context),
            Some(tls) => self.start_tls(tls, context),
        }
    }

    /// Begins to speak TLS, before anything else is said.
    #[cold]
    fn start_tls(
        &mut self,
        tls: &Identity,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        let session = tls.client_session(context.peer.addr.ip());
        let session = session.map_err(|cause| HandshakeError::Fatal(cause.to_string()))?;
        if let Some(socket) = &mut self.socket {
            socket.set_tls(session);
        }
        self.stage = Stage::TlsHandshake;
        self.continue_tls(context)
    }

    /// The peer may have shaken hands in TLS.
    fn continue_tls(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        let Some(socket) = &mut self.socket else {
            return Ok(HandshakeStep::Idle);
        };
        match socket.continue_tls_handshake() {
            Ok(true) => self.authenticate(context),
            Ok(false) => Ok(HandshakeStep::Progressed),
            Err(cause) => Err(closed_during_handshake(context, cause)),
        }
    }

    /// Begins to say who we are.
    fn authenticate(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        if context.config.key.is_none() {
            return self.send_hello(context);
        }
        let (client, opening) = proof::Client::start();
        self.proof = Some(client);
        self.send_and_wait(&opening, Stage::Authenticating, context)
    }

    /// The listener may have proved that it has our key, or has asked for our proof.
    fn on_proof_input(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        match self.read_handshake_bytes() {
            Ok(false) => return Ok(HandshakeStep::Idle),
            Ok(true) => {}
            Err(cause) if is_tls_error(&cause) => {
                return Err(closed_during_handshake(context, cause));
            }
            Err(cause) => {
                let text = format!("it does not prove that it has our auth_key: {cause}");
                let cause = io::Error::new(cause.kind(), text);
                return Err(HandshakeError::unreachable(context.config, cause));
            }
        }
        let Some(client) = &mut self.proof else {
            return Ok(HandshakeStep::Progressed);
        };
        match client.receive(&context.config.key, &mut self.handshake_input) {
            Ok(ClientStep::NeedMore) => Ok(HandshakeStep::Progressed),
            Ok(ClientStep::SendProof(proof)) => {
                self.send_and_wait(&proof, Stage::Authenticating, context)
            }
            Ok(ClientStep::Verified) => {
                self.handshake_input.clear();
                self.proof = None;
                self.send_hello(context)
            }
            Err(ProtocolError(_)) => {
                Err(HandshakeError::Fatal("it has another auth_key".to_owned()))
            }
        }
    }

    /// Says who we are.
    fn send_hello(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        let hello = Hello::new(Kind::Request, Some(context.extension), &self.request);
        self.send_and_wait(&hello.encode(), Stage::AwaitingResponse, context)
    }

    /// The peer may have answered the greeting.
    fn on_hello_input(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        match self.read_handshake_bytes() {
            Ok(false) => return Ok(HandshakeStep::Idle),
            Ok(true) => {}
            Err(cause) => return Err(closed_during_handshake(context, cause)),
        }
        match Hello::parse(&self.handshake_input) {
            Ok(None) => Ok(HandshakeStep::Progressed),
            Ok(Some((hello, len))) => {
                let trailing = self.handshake_input.split_off(len);
                self.incoming.prepend(&trailing);
                Ok(HandshakeStep::Complete(hello))
            }
            Err(ProtocolError(text)) => {
                warn_limited(
                    CONTROL,
                    format_args!("{} answers with {text}", context.peer),
                );
                let cause = io::ErrorKind::InvalidData.into();
                Err(HandshakeError::unreachable(context.config, cause))
            }
        }
    }

    /// Sends what the peer is to answer.
    fn send_and_wait(
        &mut self,
        bytes: &[u8],
        stage: Stage,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        if let Some(socket) = &mut self.socket {
            let sent = socket.send_all(bytes);
            sent.map_err(|cause| HandshakeError::unreachable(context.config, cause))?;
            self.stage = stage;
        }
        Ok(HandshakeStep::Progressed)
    }

    /// Takes what a peer has answered; whether that is anything.
    ///
    /// # Errors
    /// When the peer has ended the connection, or speaks TLS unasked.
    fn read_handshake_bytes(&mut self) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        let mut bytes = [0; 512];
        match socket.recv_bytes(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(count) => {
                self.handshake_input.extend_from_slice(&bytes[..count]);
                match socket.is_encrypted() || !self.handshake_input.starts_with(&ALERT) {
                    true => Ok(true),
                    false => Err(unexpected_tls()),
                }
            }
            Err(cause) if is_not_ready(&cause) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    /// The handshake is over, or begins again with another socket.
    pub(crate) fn end_handshake(&mut self, stage: Stage) {
        self.stage = stage;
        self.response_wait = None;
        self.handshake_input = Vec::new();
        self.proof = None;
    }
}

/// A connection has ended before the ends have greeted each other.
#[cold]
fn closed_during_handshake(context: HandshakeContext<'_>, cause: io::Error) -> HandshakeError {
    if !is_tls_error(&cause) {
        if !context.is_rdm {
            return HandshakeError::Retry(cause, context.config.connect_timeout);
        }
        // It is there, and turns callers out while many come.
        let text = format!(
            "its program ends the connection unanswered, as one of another protocol does: {cause}"
        );
        let cause = io::Error::new(cause.kind(), text);
        return HandshakeError::Retry(cause, context.config.connect_timeout);
    }
    let peer = context.peer;
    warn_limited(CONTROL, format_args!("{peer} cannot be reached: {cause}"));
    HandshakeError::Fatal(cause.to_string())
}
