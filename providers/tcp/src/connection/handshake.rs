//! The handshake of an outgoing connection: connect(2), TLS, the proof of the authorization key,
//! and the hello messages. Each response of the peer continues the handshake. The handshake ends
//! with the peer's hello message or an error.

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

/// The parameters of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandshakeContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) extension: Extension,
    pub(crate) peer: &'a Peer,
    /// Whether the endpoint is an `FI_EP_RDM` endpoint, whose connections the application does not
    /// see.
    pub(crate) is_rdm: bool,
}

/// The result of a step of a handshake.
#[derive(Debug)]
pub(crate) enum HandshakeStep {
    /// No bytes were received.
    Idle,
    Progressed,
    /// The peer has responded to the hello request.
    Complete(Hello),
}

/// The reason why a handshake failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The peer is not reachable, or has no room: retry until this time has passed since the first
    /// attempt.
    Retry(io::Error, Duration),
    /// Retrying cannot help.
    Fatal(String),
}

impl HandshakeError {
    /// The peer could not be reached: retry until the peer timeout.
    pub(crate) fn unreachable(config: &Config, cause: io::Error) -> Self {
        Self::Retry(cause, config.peer_timeout)
    }
}

impl Connection {
    /// Continues the handshake with the bytes that have arrived.
    ///
    /// # Errors
    /// When the handshake has failed.
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

    /// Handles the result of connect(2).
    fn on_connected(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        let Some(socket) = &self.socket else {
            return Ok(HandshakeStep::Idle);
        };
        let connected = socket.finish_connect();
        // An `FI_EP_RDM` endpoint responds by itself; at an `FI_EP_MSG` endpoint the application
        // accepts, which may take any time.
        self.response_wait = context.is_rdm.then(|| {
            let since = Instant::now();
            let until = since + context.config.next_response_check(Duration::ZERO);
            ResponseWait { since, until }
        });
        connected.map_err(|cause| match cause.kind() {
            io::ErrorKind::ConnectionReset => closed_during_handshake(context, cause),
            _ => HandshakeError::unreachable(context.config, cause),
        })?;
        match &context.config.tls {
            None => self.authenticate(context),
            Some(tls) => self.start_tls(tls, context),
        }
    }

    /// Starts the TLS handshake, which precedes all other messages.
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

    /// Continues the TLS handshake.
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

    /// Starts the proof of the key, or sends the hello request if there is no key.
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

    /// Continues the proof of the key with the listener's bytes.
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
                let text = format!(
                    "the peer closed the connection during the proof of the auth_key: {cause}"
                );
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
            Err(ProtocolError(_)) => Err(HandshakeError::Fatal(
                "the peer has another auth_key".to_owned(),
            )),
        }
    }

    /// Sends the hello request.
    fn send_hello(
        &mut self,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        let hello = Hello::new(Kind::Request, Some(context.extension), &self.request);
        self.send_and_wait(&hello.encode(), Stage::AwaitingResponse, context)
    }

    /// Parses the response to the hello request.
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
                self.incoming.keep_trailing(&trailing);
                Ok(HandshakeStep::Complete(hello))
            }
            Err(ProtocolError(text)) => {
                warn_limited(
                    CONTROL,
                    format_args!("{} responds with {text}", context.peer),
                );
                let cause = io::ErrorKind::InvalidData.into();
                Err(HandshakeError::unreachable(context.config, cause))
            }
        }
    }

    /// Sends bytes to which the peer responds, and enters `stage`.
    fn send_and_wait(
        &mut self,
        bytes: &[u8],
        stage: Stage,
        context: HandshakeContext<'_>,
    ) -> Result<HandshakeStep, HandshakeError> {
        if let Some(socket) = &mut self.socket {
            let sent = socket.send_all(bytes);
            sent.map_err(|cause| closed_during_handshake(context, cause))?;
            self.stage = stage;
        }
        Ok(HandshakeStep::Progressed)
    }

    /// Reads handshake bytes of the peer. Returns whether any bytes were available.
    ///
    /// # Errors
    /// When the peer has closed the connection, or has responded with an unexpected TLS alert.
    fn read_handshake_bytes(&mut self) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        let mut bytes = [0; 512];
        match socket.recv_bytes(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(count) => {
                self.handshake_input.extend_from_slice(&bytes[..count]);
                if socket.is_encrypted() || !self.handshake_input.starts_with(&ALERT) {
                    Ok(true)
                } else {
                    Err(unexpected_tls())
                }
            }
            Err(cause) if is_not_ready(&cause) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    /// Ends the handshake, or resets it for a new attempt.
    pub(crate) fn end_handshake(&mut self, stage: Stage) {
        self.stage = stage;
        self.response_wait = None;
        self.handshake_input = Vec::new();
        self.proof = None;
    }
}

/// The error of a connection that was closed before the handshake was complete.
#[cold]
fn closed_during_handshake(context: HandshakeContext<'_>, cause: io::Error) -> HandshakeError {
    if !is_tls_error(&cause) {
        if !context.is_rdm {
            return HandshakeError::Retry(cause, context.config.connect_timeout);
        }
        // The peer is running, and closes connections while its backlog is full.
        let text = format!(
            "the peer's program closes the connection without a response, as a program of another protocol does: {cause}"
        );
        let cause = io::Error::new(cause.kind(), text);
        return HandshakeError::Retry(cause, context.config.connect_timeout);
    }
    let peer = context.peer;
    warn_limited(CONTROL, format_args!("{peer} cannot be reached: {cause}"));
    HandshakeError::Fatal(cause.to_string())
}
