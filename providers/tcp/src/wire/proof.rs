//! Proof of the authorization key: before any other message, the two endpoints of a connection
//! prove to each other that they have the same key.
//!
//! | sender | content | bytes |
//! |---|---|---|
//! | client | [`PROOF_MAGIC`], a nonce | 8, 32 |
//! | server | a nonce | 32 |
//! | client | its proof | 32 |
//! | server | its proof | 32 |
//! | client | the hello request | |
//!
//! [`selvedge_kit::auth::proof`] computes and verifies the proofs.

#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

use selvedge_kit::auth::AuthKey;
use selvedge_kit::auth::proof::{self, BLOCK_LEN, Block, Mismatch};

use crate::wire::ProtocolError;

/// The first bytes of a connection whose client has a key.
pub(crate) const PROOF_MAGIC: [u8; 8] = *b"SLVGKEY2";

/// The side of the exchange that opened the connection.
#[derive(Debug)]
pub(crate) struct Client(proof::Initiator);

/// The next step of the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientStep {
    /// Wait for more bytes.
    NeedMore,
    /// Send this proof.
    SendProof(Block),
    /// The listener has proved that it has the key: send the hello message.
    Verified,
}

/// The listener's side of the exchange.
#[derive(Debug)]
pub(crate) struct Server(proof::Responder);

impl Client {
    /// Starts the exchange. Returns the first bytes to send.
    pub(crate) fn start() -> (Self, Vec<u8>) {
        let (client, nonce) = proof::Initiator::start();
        (Self(client), [&PROOF_MAGIC[..], &nonce].concat())
    }

    /// Consumes the listener's bytes from the front of `received`.
    ///
    /// # Errors
    /// When the listener does not have the key.
    pub(crate) fn receive(
        &mut self,
        key: &AuthKey,
        received: &mut Vec<u8>,
    ) -> Result<ClientStep, ProtocolError> {
        let Some(&word) = received.first_chunk::<BLOCK_LEN>() else {
            return Ok(ClientStep::NeedMore);
        };
        received.drain(..BLOCK_LEN);
        match self.0.receive(key, &word).map_err(wrong_key)? {
            proof::Step::SendProof(proof) => Ok(ClientStep::SendProof(proof)),
            proof::Step::Done => Ok(ClientStep::Verified),
        }
    }
}

impl Server {
    /// Creates the state for a new connection. Without a key, nothing has to be proved.
    pub(crate) fn new(key: &AuthKey) -> Self {
        Self(proof::Responder::new(key))
    }

    /// Consumes the client's bytes from the front of `received`. Returns the bytes to send next, if
    /// any.
    ///
    /// # Errors
    /// When the client does not have the key, or the first bytes differ from [`PROOF_MAGIC`].
    pub(crate) fn receive(
        &mut self,
        key: &AuthKey,
        received: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, ProtocolError> {
        let prefix = match &self.0 {
            proof::Responder::AwaitNonce => &PROOF_MAGIC[..],
            proof::Responder::AwaitProof { .. } => &[],
            proof::Responder::Verified => return Ok(None),
        };
        if received
            .iter()
            .zip(prefix)
            .any(|(received, opening)| received != opening)
        {
            return Err(ProtocolError("no proof of the auth_key"));
        }
        let word = received.get(prefix.len()..);
        let Some(word) = word.and_then(<[u8]>::first_chunk::<BLOCK_LEN>) else {
            return Ok(None);
        };
        let response = self.0.receive(key, word).map_err(wrong_key)?;
        received.drain(..prefix.len().saturating_add(BLOCK_LEN));
        Ok(Some(response.to_vec()))
    }

    /// Returns whether the client has proved that it has the key, or need not.
    pub(crate) fn is_proved(&self) -> bool {
        self.0.is_verified()
    }
}

fn wrong_key(_: Mismatch) -> ProtocolError {
    ProtocolError("a proof of another auth_key")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(bytes: &[u8]) -> AuthKey {
        AuthKey::new(bytes).unwrap()
    }

    /// Runs the exchange. Returns whether the client and the server accepted each other.
    fn exchange(clients_key: &AuthKey, servers_key: &AuthKey, trailing: &[u8]) -> (bool, bool) {
        let (mut client, mut received) = Client::start();
        let mut server = Server::new(servers_key);
        let mut nonce = server.receive(servers_key, &mut received).unwrap().unwrap();
        let ClientStep::SendProof(proof) = client.receive(clients_key, &mut nonce).unwrap() else {
            panic!("a nonce was received");
        };
        let mut received = [&proof, trailing].concat();
        let Ok(Some(mut response)) = server.receive(servers_key, &mut received) else {
            return (false, false);
        };
        assert_eq!(received, trailing, "what is behind the proof stays");
        let outcome = client.receive(clients_key, &mut response);
        (outcome == Ok(ClientStep::Verified), server.is_proved())
    }

    #[test]
    fn only_sides_with_the_same_key_authenticate() {
        for bytes in [&b"k"[..], b"secret", &[7; 64]] {
            assert_eq!(exchange(&key(bytes), &key(bytes), b"hello"), (true, true));
        }
        assert_eq!(exchange(&key(b"a"), &key(b"b"), b""), (false, false));
        assert_eq!(exchange(&key(b"a"), &key(b"a\0\0"), b""), (false, false));
    }

    #[test]
    fn reflected_and_replayed_proofs_are_rejected() {
        let key = key(b"secret");
        let (mut client, mut received) = Client::start();
        let mut server = Server::new(&key);
        let mut nonce = server.receive(&key, &mut received).unwrap().unwrap();
        let ClientStep::SendProof(proof) = client.receive(&key, &mut nonce).unwrap() else {
            panic!("a nonce was received");
        };
        // The client's own proof, reflected.
        client.receive(&key, &mut proof.to_vec()).unwrap_err();
        let (mut other_client, mut received) = Client::start();
        let mut other_server = Server::new(&key);
        let mut nonce = other_server.receive(&key, &mut received).unwrap().unwrap();
        other_server.receive(&key, &mut proof.to_vec()).unwrap_err();
        // The server's proof, to another client.
        let response = server.receive(&key, &mut proof.to_vec()).unwrap().unwrap();
        other_client.receive(&key, &mut nonce).unwrap();
        other_client
            .receive(&key, &mut response.clone())
            .unwrap_err();
    }

    #[test]
    fn a_server_sends_no_proof_before_the_clients_proof() {
        let key = key(b"secret");
        let (_, mut received) = Client::start();
        let mut server = Server::new(&key);
        let nonce = server.receive(&key, &mut received).unwrap().unwrap();
        assert_eq!(nonce.len(), BLOCK_LEN);
        assert!(server.receive(&key, &mut vec![7; BLOCK_LEN]).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_prove_nothing(received: Vec<u8>, at in 0_usize..=40) {
            let key = key(b"secret");
            let (mut client, opening) = Client::start();
            let mut server = Server::new(&key);
            let mut mixed = [&opening[..at], &received].concat();
            while let Ok(Some(_)) = server.receive(&key, &mut mixed) {}
            prop_assert!(!server.is_proved());
            let mut received = received;
            while let Ok(next) = client.receive(&key, &mut received) {
                prop_assert!(next != ClientStep::Verified);
                if next == ClientStep::NeedMore {
                    break;
                }
            }
        }
    }
}
