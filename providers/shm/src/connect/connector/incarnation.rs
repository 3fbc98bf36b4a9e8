//! The drain of a peer's previous incarnation: commands that the previous incarnation had sent and
//! that were not received when the next incarnation took the name.
//!
//! The hello of the previous incarnation waits in the accept backlog, and its commands are in the
//! region that the hello passes. An endpoint that connects to the next incarnation receives these
//! commands first ([`Connector::drain_previous_incarnation`]). Messages for the next incarnation
//! are suspended meanwhile ([`crate::peers::peer::SuspendedState`]), so that the previous
//! incarnation does not get them.

use std::time::Instant;

use selvedge::Error;
use selvedge_kit::auth::proof::{self as auth, Initiator, Mismatch};

use crate::connect::Connector;
use crate::connect::accept_limiter::BacklogMark;
use crate::connect::connection::{ConnectError, Connection, ReceiveOutcome};
use crate::connect::packet::{Packet, ReceivedHello, encode_key_request, encode_proof};
use crate::peers::peer::{KeyProof, NextConnection, State as PeerState};

impl Connector<'_> {
    /// Connects to the next incarnation of a peer, or returns the existing connection to it.
    pub(crate) fn connect_next_incarnation(
        &mut self,
        index: usize,
    ) -> Result<NextConnection, ConnectError> {
        let peer = &mut self.peers[index];
        // A closed connection is kept if a key proof was requested: a refusal may wait in its
        // queue.
        let is_usable =
            |next: &mut NextConnection| next.proof.is_some() || !next.connection.has_ended();
        let next = peer.next_connection.take_if(is_usable);
        if let Some(next) = next {
            return Ok(next);
        }
        peer.next_connection = None;
        let connection = Connection::connect(&peer.name, self.setup.config.directory.as_deref())?;
        let mark = self.control.accept_limiter.mark();
        Ok(NextConnection {
            connection,
            mark,
            proof: None,
        })
    }

    /// Advances the key proof with the next incarnation of a peer: requests the peer's nonce on the
    /// first call, and sends this endpoint's proof later. Returns whether the proof is complete.
    /// Without an authorization key it is complete at once.
    ///
    /// # Errors
    /// When the peer has another key or closes the connection.
    pub(crate) fn advance_key_proof(
        &mut self,
        index: usize,
        next: &mut NextConnection,
    ) -> Result<bool, ConnectError> {
        if self.control.key.is_none() {
            return Ok(true);
        }
        let Some(proof) = &mut next.proof else {
            let (initiator, nonce) = Initiator::start();
            let request = encode_key_request(&nonce, &self.control.name);
            next.connection.send(&request, &[])?;
            let since = Instant::now();
            next.proof = Some(Box::new(KeyProof { initiator, since }));
            return Ok(false);
        };
        let is_late = self.is_late(proof);
        let outcome = next.connection.receive().map_err(ConnectError::Untrusted)?;
        let word = match outcome {
            ReceiveOutcome::Empty | ReceiveOutcome::NoDescriptors
                if !is_late || is_awaited(&self.peers[index].state) =>
            {
                return Ok(false);
            }
            ReceiveOutcome::Empty | ReceiveOutcome::NoDescriptors | ReceiveOutcome::Closed => {
                return Err(self.restart_key_proof(index, is_late));
            }
            ReceiveOutcome::Packet(packet) => match (&proof.initiator, *packet) {
                (_, Packet::Refusal { errno, reason }) => {
                    return Err(ConnectError::Refused(Error::new(errno, reason)));
                }
                (Initiator::NonceSent { .. }, Packet::Nonce(word))
                | (Initiator::ProofSent { .. }, Packet::Proof(word)) => Ok(word),
                _ => Err(Mismatch),
            },
        };
        match word.and_then(|word| proof.initiator.receive(&self.control.key, &word)) {
            Ok(auth::Step::SendProof(proof)) => {
                match next.connection.send(&encode_proof(&proof), &[]) {
                    Ok(()) => Ok(false),
                    Err(_) => Err(self.restart_key_proof(index, is_late)),
                }
            }
            Ok(auth::Step::Done) => Ok(true),
            Err(Mismatch) => {
                let error = self.control.key_mismatch(&self.peers[index].name);
                Err(ConnectError::Untrusted(error))
            }
        }
    }

    /// Whether the hello timeout has passed since the key request.
    pub(crate) fn is_late(&self, proof: &KeyProof) -> bool {
        proof.since.elapsed() >= self.setup.config.hello_timeout
    }

    /// Returns the error for a next incarnation that has closed the connection before its key
    /// proof, or before this endpoint's hello. If the hello timeout has passed, one side made no
    /// progress meanwhile, and the deadline for the peer starts again.
    pub(crate) fn restart_key_proof(&mut self, index: usize, is_late: bool) -> ConnectError {
        if is_late && let PeerState::Waiting { deadline } = &mut self.peers[index].state {
            *deadline = Instant::now() + self.setup.config.peer_timeout;
        }
        ConnectError::Busy("it has not proved its auth_key")
    }

    /// Receives the commands of earlier incarnations, once a connection to the next incarnation
    /// shows that they have ended. Their connections precede `mark`, because they can only have
    /// connected before the name was free. Returns whether all commands were received.
    pub(crate) fn drain_previous_incarnation(&mut self, index: usize, mark: BacklogMark) -> bool {
        self.peers[index].has_next_incarnation = true;
        let is_complete = self.receive_all_before(index, mark);
        let peer = &mut self.peers[index];
        peer.has_next_incarnation =
            !is_complete || matches!(peer.state, PeerState::Draining { .. });
        is_complete
    }

    /// Handles the connections before `mark`, and receives from this peer, whose connection may be
    /// one of them. Returns whether all of them were handled: one poll handles only a few.
    pub(crate) fn receive_all_before(&mut self, index: usize, mark: BacklogMark) -> bool {
        for (connection, received) in self.control.take_early_hellos() {
            self.handle_hello(connection, received);
        }
        self.accept_connections(Instant::now());
        self.receive_all(index);
        self.control.accept_limiter.has_passed(mark)
    }

    /// Receives the commands of an incarnation whose connection has closed, while messages wait for
    /// the next incarnation, or were sent to an incarnation that has not responded.
    pub(crate) fn drain_ended_connection(
        &mut self,
        index: usize,
        connection: Connection,
        received: ReceivedHello,
    ) -> Result<(), (Connection, Error)> {
        self.peers[index].suspend_next_incarnation();
        let accepted = self.accept_hello(index, connection, received);
        match accepted {
            Ok(()) => self.receive_all(index),
            Err(_) => self.resume_next_incarnation(index),
        }
        accepted
    }

    /// Restores the state of the next incarnation after the previous one is drained.
    pub(crate) fn resume_next_incarnation(&mut self, index: usize) {
        let peer = &mut self.peers[index];
        let Some(saved) = peer.suspended.take() else {
            return;
        };
        peer.restore(*saved);
        if let PeerState::Waiting { .. } = peer.state {
            self.control.ensure_retry(index);
        }
        let peer = &mut self.peers[index];
        self.schedule.activate(peer, &self.setup.ep);
    }
}

fn is_awaited(state: &PeerState) -> bool {
    matches!(state, PeerState::Waiting { .. })
}
