//! Challenge-response proof of an authorization key: both sides of a connection prove that they
//! have the same key, without sending a byte of it.
//!
//! | sender | block |
//! |---|---|
//! | the initiator | its nonce |
//! | the responder | its nonce |
//! | the initiator | its proof |
//! | the responder | its proof |
//!
//! A proof is the HMAC-SHA-256, under the key, of: the side's letter (A the initiator, B the
//! responder); the key's length in a byte, because HMAC does not distinguish a key from the same
//! key with zeros appended; both nonces, the initiator's first. Neither side's proof can be
//! computed from the other's, and a proof of an earlier connection is not valid again.
//!
//! A proof allows its reader to guess keys offline. The initiator proves first, because every
//! process that reaches a responder may connect to it.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::AuthKey;

/// The length of a nonce and of a proof in bytes.
pub const BLOCK_LEN: usize = 32;

/// A nonce or a proof.
pub type Block = [u8; BLOCK_LEN];

/// The other side does not have the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

/// The state of the side that has opened the connection.
#[derive(Debug)]
pub enum Initiator {
    /// The initiator has sent its nonce, and waits for the responder's.
    NonceSent {
        /// The initiator's nonce.
        nonce: Block,
    },
    /// The initiator has sent its proof, and waits for the responder's.
    ProofSent {
        /// The nonces of the initiator and of the responder.
        nonces: [Block; 2],
    },
}

/// The next step of an initiator.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this proof.
    SendProof(Block),
    /// Continue: the responder has proved that it has the key.
    Done,
}

/// The state of the side that has accepted the connection.
#[derive(Debug)]
pub enum Responder {
    /// The responder waits for the initiator's nonce.
    AwaitNonce,
    /// The responder has sent its nonce, and waits for the initiator's proof.
    AwaitProof {
        /// The nonces of the initiator and of the responder.
        nonces: [Block; 2],
    },
    /// The initiator has proved that it has the key, or there is no key.
    Verified,
}

impl Initiator {
    /// Makes an initiator. Returns it with its nonce, which the caller sends.
    pub fn start() -> (Self, Block) {
        let nonce = nonce();
        (Self::NonceSent { nonce }, nonce)
    }

    /// Takes a block from the responder; returns the next step.
    ///
    /// # Errors
    /// If the responder does not have the key.
    pub fn receive(&mut self, key: &AuthKey, block: &Block) -> Result<Step, Mismatch> {
        match *self {
            Self::NonceSent { nonce } => {
                let nonces = [nonce, *block];
                *self = Self::ProofSent { nonces };
                Ok(Step::SendProof(prove(key, b'A', &nonces)))
            }
            Self::ProofSent { nonces } => {
                verify(key, b'B', &nonces, block)?;
                Ok(Step::Done)
            }
        }
    }
}

impl Responder {
    /// Makes a responder. Without a key, it requires no proof.
    pub fn new(key: &AuthKey) -> Self {
        if key.is_none() {
            Self::Verified
        } else {
            Self::AwaitNonce
        }
    }

    /// Takes a block from the initiator; returns the block to send.
    ///
    /// # Errors
    /// If the initiator does not have the key, or sends a proof that was not requested.
    pub fn receive(&mut self, key: &AuthKey, block: &Block) -> Result<Block, Mismatch> {
        match self {
            Self::AwaitNonce => {
                let own = nonce();
                let nonces = [*block, own];
                *self = Self::AwaitProof { nonces };
                Ok(own)
            }
            Self::AwaitProof { nonces } => {
                verify(key, b'A', nonces, block)?;
                let response = prove(key, b'B', nonces);
                *self = Self::Verified;
                Ok(response)
            }
            Self::Verified => Err(Mismatch),
        }
    }

    /// Returns whether the initiator has proved that it has the key, or there is no key.
    pub fn is_verified(&self) -> bool {
        matches!(self, Self::Verified)
    }
}

#[expect(clippy::expect_used, reason = "its input is not from a peer")]
fn mac(key: &AuthKey, side: u8, nonces: &[Block; 2]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key.as_bytes());
    let mac = mac.expect("a key of any length is one");
    mac.chain_update([side, key.as_bytes().len() as u8])
        .chain_update(nonces[0])
        .chain_update(nonces[1])
}

fn prove(key: &AuthKey, side: u8, nonces: &[Block; 2]) -> Block {
    mac(key, side, nonces).finalize().into_bytes().into()
}

/// Checks a proof, in a time that does not depend on how many of its bytes are right.
fn verify(key: &AuthKey, side: u8, nonces: &[Block; 2], proof: &Block) -> Result<(), Mismatch> {
    let verified = mac(key, side, nonces).verify_slice(proof);
    verified.map_err(|_| Mismatch)
}

/// Random bytes from the system.
#[expect(clippy::expect_used, reason = "its input is not from a peer")]
fn nonce() -> Block {
    let mut nonce = [0; BLOCK_LEN];
    getrandom::fill(&mut nonce).expect("the system has random bytes");
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> AuthKey {
        AuthKey::new(bytes).unwrap()
    }

    /// The value is that of `openssl mac -digest SHA256 -macopt key:secret HMAC` for `A`, a byte 6,
    /// 32 bytes 1 and 32 bytes 2.
    #[test]
    fn a_proof_equals_the_hmac_of_openssl() {
        let proof = prove(&key(b"secret"), b'A', &[[1; BLOCK_LEN], [2; BLOCK_LEN]]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        let reference = "085ea380eb4b970f7d7de1fdf46fada826ee78f798b303fd44c832ab37de70ad";
        assert_eq!(hex, reference);
    }

    #[test]
    fn a_proof_of_another_key_or_of_an_earlier_connection_is_refused() {
        let (key_a, key_b) = (key(b"a"), key(b"a\0"));
        let (mut initiator, challenge) = Initiator::start();
        let mut responder = Responder::new(&key_a);
        let nonce = responder.receive(&key_a, &challenge).unwrap();
        let Ok(Step::SendProof(proof)) = initiator.receive(&key_a, &nonce) else {
            panic!("the nonce was received");
        };
        let mut other = Responder::new(&key_b);
        other.receive(&key_b, &challenge).unwrap();
        assert_eq!(other.receive(&key_b, &proof), Err(Mismatch));
        // The same nonce and proof, sent once more.
        let mut again = Responder::new(&key_a);
        again.receive(&key_a, &challenge).unwrap();
        assert_eq!(again.receive(&key_a, &proof), Err(Mismatch));
        let response = responder.receive(&key_a, &proof).unwrap();
        assert!(responder.is_verified() && !again.is_verified());
        // The initiator's own proof is not valid as the responder's.
        assert_eq!(initiator.receive(&key_a, &proof), Err(Mismatch));
        assert_eq!(initiator.receive(&key_a, &response), Ok(Step::Done));
        assert_eq!(responder.receive(&key_a, &proof), Err(Mismatch));
    }

    #[test]
    fn a_responder_without_a_key_requires_no_proof() {
        assert!(Responder::new(&AuthKey::none()).is_verified());
    }
}
