//! TLS where connections are made: it comes before everything else, and whom it does not suit is no
//! peer. An end that speaks it and one that does not tell each other so.

use std::io;

use selvedge_kit::complaint::complain;

use crate::config::CONTROL;
use crate::lane::Stage;
use crate::state::State;
use crate::tls::is_insecure;

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
            // It is there, and turns people out while a crowd comes.
            return self.try_again(at, cause, self.config.connect_timeout);
        }
        let peer = &self.peers[self.lanes[at].peer];
        complain(CONTROL, format_args!("{peer} cannot be reached: {cause}"));
        self.refused(at, &cause.to_string());
    }
}
