//! `Connector`: connects peers, receives their packets and ends their incarnations.
//!
//! The first message to a peer connects to it: the message is in the outbox before the peer
//! receives the hello. With an authorization key, both sides prove the key first, and messages wait
//! in the outbox. A peer responds to a hello with a hello of its own. If both connect at the same
//! time, each side takes the other's first hello and ignores the second, which has the same
//! content.
//!
//! The module `disconnect` ends incarnations.

mod accept;
pub(crate) mod disconnect;
mod exchange;
mod incarnation;
mod outgoing;
mod receive;

use std::time::Instant;

use selvedge::{Errno, Error};
use selvedge_kit::rate_limit::warn_limited;

use crate::connect::control::{Control, SocketEvent};
use crate::matching::Matching;
use crate::peers::Peers;
use crate::peers::telemetry;
use crate::progress::schedule::Schedule;
use crate::provider::setup::Setup;

/// The parts of an endpoint that change when peers connect and disconnect.
#[derive(Debug)]
pub(crate) struct Connector<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) peers: &'a mut Peers,
    pub(crate) matching: &'a mut Matching,
    pub(crate) schedule: &'a mut Schedule,
    pub(crate) control: &'a mut Control,
}

impl Connector<'_> {
    /// Polls the sockets for new connections, packets of peers, and closed connections.
    pub(crate) fn poll_sockets(&mut self, now: Instant) {
        self.setup.shared.catch_up();
        self.control.accept_limiter.begin(now);
        let mut has_unauthenticated =
            self.control.has_expired_connection(now) || self.control.is_out_of_descriptors();
        for event in self.control.events() {
            match event {
                SocketEvent::Unauthenticated => has_unauthenticated = true,
                SocketEvent::Peer(index) => self.receive_ready(index),
            }
        }
        for index in self.control.take_peers_without_descriptors() {
            self.resume_receive(index as usize);
        }
        for index in self.control.due_retries(now) {
            self.retry_connect(index, now);
        }
        for index in std::mem::take(&mut self.schedule.ending) {
            self.continue_drain(index as usize);
        }
        for (connection, received) in self.control.take_early_hellos() {
            self.handle_hello(connection, received);
        }
        if has_unauthenticated {
            self.accept_connections(now);
            self.control.drop_expired_connections(now);
        }
        self.control.check_name_files(now);
    }

    fn update_telemetry(&self) {
        telemetry::update_now(self.setup, self.peers, self.matching, Instant::now());
    }
}

/// Logs an error where it is decided, and returns its number.
fn log_error(error: &Error) -> Errno {
    warn_limited("selvedge::shm::ep_ctrl", format_args!("{error}"));
    error.errno()
}
