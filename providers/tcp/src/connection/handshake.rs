//! The handshake of a connection that we ask for: the system connects, the ends shake hands in TLS,
//! prove that they have the authorization key, and greet each other. It moves on as the peer answers,
//! and ends with the peer's greeting or with the reason why there is none.

use std::io;
use std::time::{Duration, Instant};

use selvedge_kit::rate_limit::warn_limited;

use crate::config::{CONTROL, Config};
use crate::connection::{Connection, Silence, Stage};
use crate::peers::Peer;
use crate::socket::is_not_ready;
use crate::socket::tls::{ALERT, Identity, is_insecure, unwanted};
use crate::wire::Nonsense;
use crate::wire::hello::{Hello, Introduction, Kind};
use crate::wire::proof::{self, Next};

/// Who greets whom, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends<'a> {
    pub(crate) config: &'a Config,
    pub(crate) own: Introduction,
    pub(crate) peer: &'a Peer,
    /// Whether the endpoint has no connections for its application.
    pub(crate) is_unconnected: bool,
}

/// How far a handshake has got.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing has come.
    Nothing,
    Moved,
    /// The peer has answered the greeting.
    Greeted(Hello),
}

/// Why a handshake has ended.
#[derive(Debug)]
pub(crate) enum Setback {
    /// The peer is not there, or has no room: it may be tried again, for so long since the first try.
    Retry(io::Error, Duration),
    /// The peer is not the right one: there is no use in trying again.
    Refused(String),
}

impl Setback {
    /// The peer could not be reached.
    pub(crate) fn not_there(config: &Config, cause: io::Error) -> Self {
        Self::Retry(cause, config.peer_timeout)
    }
}

impl Connection {
    /// Moves the handshake on with what has come.
    ///
    /// # Errors
    /// When it has ended.
    pub(crate) fn shake_hands(&mut self, ends: Ends<'_>) -> Result<Step, Setback> {
        match self.stage {
            Stage::Resting { .. } | Stage::Up => Ok(Step::Nothing),
            Stage::Connecting { .. } => self.connected(ends),
            Stage::Securing => self.secured(ends),
            Stage::Proving => self.proved(ends),
            Stage::Asking => self.greeted(ends),
        }
    }

    /// The system has connected, or failed to.
    fn connected(&mut self, ends: Ends<'_>) -> Result<Step, Setback> {
        let Some(socket) = &self.socket else {
            return Ok(Step::Nothing);
        };
        let connected = socket.finish_connect();
        // An endpoint without connections answers by itself; for one with, a program accepts.
        self.silence = ends.is_unconnected.then(|| {
            let since = Instant::now();
            let until = since + ends.config.silence(Duration::ZERO);
            Silence { since, until }
        });
        connected.map_err(|cause| Setback::not_there(ends.config, cause))?;
        match &ends.config.tls {
            None => self.introduce(ends),
            Some(tls) => self.secure(tls, ends),
        }
    }

    /// Begins to speak TLS, before anything else is said.
    #[cold]
    fn secure(&mut self, tls: &Identity, ends: Ends<'_>) -> Result<Step, Setback> {
        let session = tls.call(ends.peer.addr.ip());
        let session = session.map_err(|cause| Setback::Refused(cause.to_string()))?;
        if let Some(socket) = &mut self.socket {
            socket.secure(session);
        }
        self.stage = Stage::Securing;
        self.secured(ends)
    }

    /// The peer may have shaken hands in TLS.
    fn secured(&mut self, ends: Ends<'_>) -> Result<Step, Setback> {
        let Some(socket) = &mut self.socket else {
            return Ok(Step::Nothing);
        };
        match socket.shake() {
            Ok(true) => self.introduce(ends),
            Ok(false) => Ok(Step::Moved),
            Err(cause) => Err(broken_off(ends, cause)),
        }
    }

    /// Begins to say who we are.
    fn introduce(&mut self, ends: Ends<'_>) -> Result<Step, Setback> {
        if ends.config.key.is_none() {
            return self.greet(ends);
        }
        let (caller, question) = proof::Caller::ask();
        self.proof = Some(caller);
        self.ask(&question, Stage::Proving, ends)
    }

    /// The listener may have proved that it has our key, or has asked for our proof.
    fn proved(&mut self, ends: Ends<'_>) -> Result<Step, Setback> {
        match self.take_bytes_of_handshake() {
            Ok(false) => return Ok(Step::Nothing),
            Ok(true) => {}
            Err(cause) if is_insecure(&cause) => return Err(broken_off(ends, cause)),
            Err(cause) => {
                let what = format!("it does not prove that it has our auth_key: {cause}");
                let cause = io::Error::new(cause.kind(), what);
                return Err(Setback::not_there(ends.config, cause));
            }
        }
        let Some(caller) = &mut self.proof else {
            return Ok(Step::Moved);
        };
        match caller.hear(&ends.config.key, &mut self.greeting) {
            Ok(Next::Wait) => Ok(Step::Moved),
            Ok(Next::Prove(proof)) => self.ask(&proof, Stage::Proving, ends),
            Ok(Next::Greet) => {
                self.greeting.clear();
                self.proof = None;
                self.greet(ends)
            }
            Err(Nonsense(_)) => Err(Setback::Refused("it has another auth_key".to_owned())),
        }
    }

    /// Says who we are.
    fn greet(&mut self, ends: Ends<'_>) -> Result<Step, Setback> {
        let hello = Hello::new(Kind::Request, Some(ends.own), &self.request);
        self.ask(&hello.encode(), Stage::Asking, ends)
    }

    /// The peer may have answered the greeting.
    fn greeted(&mut self, ends: Ends<'_>) -> Result<Step, Setback> {
        match self.take_bytes_of_handshake() {
            Ok(false) => return Ok(Step::Nothing),
            Ok(true) => {}
            Err(cause) => return Err(broken_off(ends, cause)),
        }
        match Hello::parse(&self.greeting) {
            Ok(None) => Ok(Step::Moved),
            Ok(Some((hello, len))) => {
                let rest = self.greeting.split_off(len);
                self.incoming.put_back(&rest);
                Ok(Step::Greeted(hello))
            }
            Err(Nonsense(what)) => {
                warn_limited(CONTROL, format_args!("{} answers with {what}", ends.peer));
                let cause = io::ErrorKind::InvalidData.into();
                Err(Setback::not_there(ends.config, cause))
            }
        }
    }

    /// Sends what the peer is to answer.
    fn ask(&mut self, bytes: &[u8], stage: Stage, ends: Ends<'_>) -> Result<Step, Setback> {
        if let Some(socket) = &mut self.socket {
            let sent = socket.send_whole(bytes);
            sent.map_err(|cause| Setback::not_there(ends.config, cause))?;
            self.stage = stage;
        }
        Ok(Step::Moved)
    }

    /// Takes what a peer has answered; whether that is anything.
    ///
    /// # Errors
    /// When the peer has ended the connection, or speaks TLS unasked.
    fn take_bytes_of_handshake(&mut self) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        let mut bytes = [0; 512];
        match socket.recv_bytes(&mut bytes) {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(count) => {
                self.greeting.extend_from_slice(&bytes[..count]);
                match socket.is_sealed() || !self.greeting.starts_with(&ALERT) {
                    true => Ok(true),
                    false => Err(unwanted()),
                }
            }
            Err(cause) if is_not_ready(&cause) => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    /// The handshake is over, or begins again with another socket.
    pub(crate) fn leave_handshake(&mut self, stage: Stage) {
        self.stage = stage;
        self.silence = None;
        self.greeting = Vec::new();
        self.proof = None;
    }
}

/// A connection has ended before the ends have greeted each other.
#[cold]
fn broken_off(ends: Ends<'_>, cause: io::Error) -> Setback {
    if !is_insecure(&cause) {
        if !ends.is_unconnected {
            return Setback::Retry(cause, ends.config.connect_timeout);
        }
        // It is there, and turns callers out while many come.
        let what = format!(
            "its program ends the connection unanswered, as one of another protocol does: {cause}"
        );
        let cause = io::Error::new(cause.kind(), what);
        return Setback::Retry(cause, ends.config.connect_timeout);
    }
    let peer = ends.peer;
    warn_limited(CONTROL, format_args!("{peer} cannot be reached: {cause}"));
    Setback::Refused(cause.to_string())
}
