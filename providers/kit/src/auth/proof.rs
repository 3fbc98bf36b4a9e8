//! Proof of an authorization key: two ends of a connection show each other that they have the same
//! one, and send no byte of it.
//!
//! | sender | word |
//! |---|---|
//! | the caller | its nonce |
//! | the listener | its nonce |
//! | the caller | its proof |
//! | the listener | its proof |
//!
//! A proof is the HMAC-SHA-256, by the key, of the side's letter (A the caller, B the listener), the
//! key's length in a byte, since HMAC takes zeros behind a key for none, and both nonces, the caller's
//! first. Neither side's proof can be made from the other's, nor one of an earlier connection be used
//! again.
//!
//! A proof lets its reader try keys at its leisure. The caller proves first, because every process
//! that reaches a listener may call it.

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

/// Bytes of a nonce, and of a proof.
pub const WORD: usize = 32;

/// A nonce or a proof.
pub type Word = [u8; WORD];

/// The other end does not have the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch;

/// The state of the end that has begun the connection.
#[derive(Debug)]
pub enum Caller {
    /// The listener's nonce has to come.
    Asked {
        /// The caller's nonce.
        nonce: Word,
    },
    /// The listener's proof has to come.
    Proved {
        /// The caller's nonce and the listener's.
        nonces: [Word; 2],
    },
}

/// What a caller does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It sends its proof.
    Prove(Word),
    /// It goes on: the listener has proved that it has the key.
    Continue,
}

/// The state of the listener.
#[derive(Debug)]
pub enum Called {
    /// The caller's nonce has to come.
    Unasked,
    /// The caller's proof has to come.
    Asked {
        /// The caller's nonce and the listener's.
        nonces: [Word; 2],
    },
    /// The caller has proved that it has the key, or there is none.
    Convinced,
}

impl Caller {
    /// Begins: the nonce is to be sent.
    pub fn ask() -> (Self, Word) {
        let nonce = nonce();
        (Self::Asked { nonce }, nonce)
    }

    /// Takes a word of the listener.
    ///
    /// # Errors
    /// When the listener does not have the key.
    pub fn hear(&mut self, key: &AuthKey, word: &Word) -> Result<Next, Mismatch> {
        match *self {
            Self::Asked { nonce } => {
                let nonces = [nonce, *word];
                *self = Self::Proved { nonces };
                Ok(Next::Prove(prove(key, b'A', &nonces)))
            }
            Self::Proved { nonces } => {
                verify(key, b'B', &nonces, word)?;
                Ok(Next::Continue)
            }
        }
    }
}

impl Called {
    /// The state in which a listener with this key, or with none, begins.
    pub fn of(key: &AuthKey) -> Self {
        match key.is_none() {
            true => Self::Convinced,
            false => Self::Unasked,
        }
    }

    /// Takes a word of the caller; the answer is to be sent.
    ///
    /// # Errors
    /// When the caller does not have the key, or proves what nobody has asked for.
    pub fn hear(&mut self, key: &AuthKey, word: &Word) -> Result<Word, Mismatch> {
        match self {
            Self::Unasked => {
                let own = nonce();
                let nonces = [*word, own];
                *self = Self::Asked { nonces };
                Ok(own)
            }
            Self::Asked { nonces } => {
                verify(key, b'A', nonces, word)?;
                let answer = prove(key, b'B', nonces);
                *self = Self::Convinced;
                Ok(answer)
            }
            Self::Convinced => Err(Mismatch),
        }
    }

    /// Whether the caller has proved that it has the key, or there is none.
    pub fn is_convinced(&self) -> bool {
        matches!(self, Self::Convinced)
    }
}

#[expect(clippy::expect_used, reason = "no word of a peer's is in it")]
fn mac(key: &AuthKey, side: u8, nonces: &[Word; 2]) -> Hmac<Sha256> {
    let mac = Hmac::<Sha256>::new_from_slice(key.as_bytes());
    let mac = mac.expect("a key of any length is one");
    mac.chain_update([side, key.as_bytes().len() as u8])
        .chain_update(nonces[0])
        .chain_update(nonces[1])
}

fn prove(key: &AuthKey, side: u8, nonces: &[Word; 2]) -> Word {
    mac(key, side, nonces).finalize().into_bytes().into()
}

/// In a time that does not depend on how much of it is right.
fn verify(key: &AuthKey, side: u8, nonces: &[Word; 2], proof: &Word) -> Result<(), Mismatch> {
    let verified = mac(key, side, nonces).verify_slice(proof);
    verified.map_err(|_| Mismatch)
}

/// Random bytes of the system.
#[expect(clippy::expect_used, reason = "no word of a peer's is in it")]
fn nonce() -> Word {
    let mut word = [0; WORD];
    getrandom::fill(&mut word).expect("the system has random bytes");
    word
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
    fn a_proof_is_the_hmac_that_others_compute() {
        let proof = prove(&key(b"secret"), b'A', &[[1; WORD], [2; WORD]]);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        let reference = "085ea380eb4b970f7d7de1fdf46fada826ee78f798b303fd44c832ab37de70ad";
        assert_eq!(hex, reference);
    }

    #[test]
    fn a_proof_of_another_key_or_of_an_earlier_connection_is_none() {
        let (ours, theirs) = (key(b"a"), key(b"a\0"));
        let (mut caller, question) = Caller::ask();
        let mut called = Called::of(&ours);
        let nonce = called.hear(&ours, &question).unwrap();
        let Ok(Next::Prove(proof)) = caller.hear(&ours, &nonce) else {
            panic!("a nonce has come");
        };
        let mut other = Called::of(&theirs);
        other.hear(&theirs, &question).unwrap();
        assert_eq!(other.hear(&theirs, &proof), Err(Mismatch));
        // The same question and proof, said once more.
        let mut again = Called::of(&ours);
        again.hear(&ours, &question).unwrap();
        assert_eq!(again.hear(&ours, &proof), Err(Mismatch));
        let answer = called.hear(&ours, &proof).unwrap();
        assert!(called.is_convinced() && !again.is_convinced());
        // The caller's own proof is none of the listener's.
        assert_eq!(caller.hear(&ours, &proof), Err(Mismatch));
        assert_eq!(caller.hear(&ours, &answer), Ok(Next::Continue));
        assert_eq!(called.hear(&ours, &proof), Err(Mismatch));
    }

    #[test]
    fn a_listener_without_a_key_asks_for_no_proof() {
        assert!(Called::of(&AuthKey::none()).is_convinced());
    }
}
