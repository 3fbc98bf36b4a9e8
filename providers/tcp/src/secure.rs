//! TLS where connections are made: it comes before everything else, and whom it does not suit is no
//! peer. An end that speaks it and one that does not tell each other so.

use std::io;

use selvedge_kit::complaint::complain;

use crate::connect::TARGET;
use crate::lane::Stage;
use crate::state::State;

/// How a connection in TLS begins: with a record of the handshake, of any release.
pub(crate) const HELLO: [u8; 2] = [22, 3];
/// What tells a caller in TLS that there is none here: the alert `handshake_failure`.
pub(crate) const REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// How an end in TLS answers what is none: with an alert.
pub(crate) const ALERT: [u8; 5] = [21, 3, 3, 0, 2];

impl State {
    /// Begins to speak TLS, before anything else is said.
    #[cold]
    pub(crate) fn secure(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        let (Some(socket), Some(tls)) = (&mut lane.socket, &self.config.tls) else {
            return;
        };
        match tls.call(self.peers[lane.peer].addr.ip()) {
            Ok(session) => socket.secure(session),
            Err(cause) => return self.refused(at, &cause.to_string()),
        }
        lane.stage = Stage::Securing;
        self.secured(at);
    }

    /// The peer may have shaken hands.
    pub(crate) fn secured(&mut self, at: usize) -> usize {
        let Some(socket) = &mut self.lanes[at].socket else {
            return 0;
        };
        match socket.shake() {
            Ok(true) => self.introduce(at),
            Ok(false) => self.watch(at),
            Err(cause) => self.broken_off(at, &cause),
        }
        1
    }

    /// A connection has ended before the ends have greeted each other.
    #[cold]
    pub(crate) fn broken_off(&mut self, at: usize, cause: &io::Error) {
        if !is_insecure(cause) {
            if self.door.is_none() {
                return self.connection_failed(at, cause);
            }
            // It is there, and turns people out while a crowd comes.
            let what = format!(
                "its program ends the connection unanswered, as one of another protocol does: {cause}"
            );
            let cause = io::Error::new(cause.kind(), what);
            return self.try_again(at, &cause, self.config.connect_timeout);
        }
        let peer = &self.peers[self.lanes[at].peer];
        complain(TARGET, format_args!("{peer} cannot be reached: {cause}"));
        self.refused(at, &cause.to_string());
    }
}

/// Whether TLS is what a connection has failed over: trying again does not help.
pub(crate) fn is_insecure(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::InvalidData
}

/// The peer speaks TLS, and we do not.
pub(crate) fn unwanted() -> io::Error {
    let what = "it speaks TLS, which is off here (FI_TCP_TLS)";
    io::Error::new(io::ErrorKind::InvalidData, what)
}
