//! Proof of the authorization key: what two ends with one say before anything else on a connection.
//!
//! | who | what | bytes |
//! |---|---|---|
//! | the caller | [`QUESTION`], a nonce | 8, 32 |
//! | the listener | a nonce | 32 |
//! | the caller | its proof | 32 |
//! | the listener | its proof | 32 |
//! | the caller | what it says anyway | |
//!
//! A proof is the HMAC-SHA-256, by the key, of the side's letter (A the caller, B the listener), the
//! key's length in a byte, since HMAC takes zeros behind a key for none, and both nonces, the caller's
//! first. Neither side's proof can be made from the other's, nor one of an earlier connection be used
//! again.
//!
//! A proof lets its reader try keys at its leisure. The caller proves first, because every host that
//! reaches a listener may call it.

#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

use hmac::{Hmac, KeyInit, Mac};
use selvedge_kit::auth::AuthKey;
use sha2::Sha256;

use crate::wire::Nonsense;

/// What a connection begins with whose caller has a key.
pub(crate) const QUESTION: [u8; 8] = *b"SLVGKEY2";
/// Bytes of a nonce, and of a proof.
const WORD: usize = 32;
/// Bytes of a question.
const ASKED: usize = QUESTION.len() + WORD;

type Word = [u8; WORD];

/// The side that has begun the connection.
#[derive(Debug)]
pub(crate) enum Caller {
    Asked { nonce: Word },
    Proved { nonces: [Word; 2] },
}

/// What a caller does now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More bytes have to come.
    Wait,
    /// Its proof is sent.
    Prove(Word),
    /// The listener has proved that it has the key.
    Greet,
}

/// The listener's side.
#[derive(Debug)]
pub(crate) enum Called {
    Unasked,
    Asked { nonces: [Word; 2] },
    Convinced,
}

impl Caller {
    /// Begins: what is to be sent.
    pub(crate) fn ask() -> (Self, Vec<u8>) {
        let nonce = nonce();
        (Self::Asked { nonce }, [&QUESTION[..], &nonce].concat())
    }

    /// Takes what it needs from the front of the listener's bytes.
    ///
    /// # Errors
    /// When the listener does not have the key.
    pub(crate) fn hear(&mut self, key: &AuthKey, said: &mut Vec<u8>) -> Result<Next, Nonsense> {
        let Some(&word) = said.first_chunk::<WORD>() else {
            return Ok(Next::Wait);
        };
        said.drain(..WORD);
        match *self {
            Self::Asked { nonce } => {
                let nonces = [nonce, word];
                *self = Self::Proved { nonces };
                Ok(Next::Prove(prove(key, b'A', &nonces)))
            }
            Self::Proved { nonces } => {
                verify(key, b'B', &nonces, &word)?;
                Ok(Next::Greet)
            }
        }
    }
}

impl Called {
    /// What whoever comes has to prove.
    pub(crate) fn of(key: &AuthKey) -> Self {
        match key.is_none() {
            true => Self::Convinced,
            false => Self::Unasked,
        }
    }

    /// Takes what it needs from the front of these bytes: what is to be sent now, if anything is.
    ///
    /// # Errors
    /// When the caller does not have the key, which shows at the first byte of another question.
    pub(crate) fn hear(
        &mut self,
        key: &AuthKey,
        said: &mut Vec<u8>,
    ) -> Result<Option<Vec<u8>>, Nonsense> {
        match self {
            Self::Unasked => {
                if said
                    .iter()
                    .zip(&QUESTION)
                    .any(|(said, asked)| said != asked)
                {
                    return Err(Nonsense("something else than that it has the auth_key"));
                }
                let nonce_of_caller = said.get(QUESTION.len()..);
                let Some(theirs) = nonce_of_caller.and_then(<[u8]>::first_chunk::<WORD>) else {
                    return Ok(None);
                };
                let nonces = [*theirs, nonce()];
                said.drain(..ASKED);
                *self = Self::Asked { nonces };
                Ok(Some(nonces[1].to_vec()))
            }
            Self::Asked { nonces } => {
                let Some((proof, _)) = said.split_first_chunk::<WORD>() else {
                    return Ok(None);
                };
                verify(key, b'A', nonces, proof)?;
                let answer = prove(key, b'B', nonces).to_vec();
                said.drain(..WORD);
                *self = Self::Convinced;
                Ok(Some(answer))
            }
            Self::Convinced => Ok(None),
        }
    }

    pub(crate) fn is_convinced(&self) -> bool {
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
fn verify(key: &AuthKey, side: u8, nonces: &[Word; 2], proof: &[u8]) -> Result<(), Nonsense> {
    let verified = mac(key, side, nonces).verify_slice(proof);
    verified.map_err(|_| Nonsense("that it has another auth_key"))
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
    use proptest::prelude::*;

    use super::*;

    fn key(bytes: &[u8]) -> AuthKey {
        AuthKey::new(bytes).unwrap()
    }

    /// What both sides of a connection come to: the caller, and the listener.
    fn meet(callers: &AuthKey, others: &AuthKey, last: &[u8]) -> (bool, bool) {
        let (mut caller, mut said) = Caller::ask();
        let mut called = Called::Unasked;
        let mut nonce = called.hear(others, &mut said).unwrap().unwrap();
        let Next::Prove(proof) = caller.hear(callers, &mut nonce).unwrap() else {
            panic!("a nonce has come");
        };
        let mut said = [&proof, last].concat();
        let Ok(Some(mut answer)) = called.hear(others, &mut said) else {
            return (false, false);
        };
        assert_eq!(said, last, "what is behind the proof stays");
        let heard = caller.hear(callers, &mut answer);
        (heard == Ok(Next::Greet), called.is_convinced())
    }

    #[test]
    fn the_ends_of_a_connection_with_one_key_believe_each_other_and_others_do_not() {
        for bytes in [&b"k"[..], b"secret", &[7; 64]] {
            assert_eq!(meet(&key(bytes), &key(bytes), b"hello"), (true, true));
        }
        assert_eq!(meet(&key(b"a"), &key(b"b"), b""), (false, false));
        assert_eq!(meet(&key(b"a"), &key(b"a\0\0"), b""), (false, false));
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
    fn a_proof_of_the_other_side_or_of_another_connection_is_none() {
        let key = key(b"secret");
        let (mut caller, mut said) = Caller::ask();
        let mut called = Called::Unasked;
        let mut nonce = called.hear(&key, &mut said).unwrap().unwrap();
        let Next::Prove(proof) = caller.hear(&key, &mut nonce).unwrap() else {
            panic!("a nonce has come");
        };
        // The caller's own proof, sent back to it.
        caller.hear(&key, &mut proof.to_vec()).unwrap_err();
        let (mut stranger, mut said) = Caller::ask();
        let mut other = Called::Unasked;
        let mut nonce = other.hear(&key, &mut said).unwrap().unwrap();
        other.hear(&key, &mut proof.to_vec()).unwrap_err();
        // The listener's proof, to another caller.
        let answer = called.hear(&key, &mut proof.to_vec()).unwrap().unwrap();
        stranger.hear(&key, &mut nonce).unwrap();
        stranger.hear(&key, &mut answer.clone()).unwrap_err();
    }

    #[test]
    fn a_listener_proves_nothing_to_a_caller_that_has_not() {
        let key = key(b"secret");
        let (_, mut said) = Caller::ask();
        let mut called = Called::Unasked;
        let nonce = called.hear(&key, &mut said).unwrap().unwrap();
        assert_eq!(nonce.len(), WORD);
        assert!(called.hear(&key, &mut vec![7; WORD]).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_convince_nobody(said: Vec<u8>, at in 0_usize..=40) {
            let key = key(b"secret");
            let (mut caller, asked) = Caller::ask();
            let mut called = Called::Unasked;
            let mut mixed = [&asked[..at], &said].concat();
            while let Ok(Some(_)) = called.hear(&key, &mut mixed) {}
            prop_assert!(!called.is_convinced());
            let mut said = said;
            while let Ok(next) = caller.hear(&key, &mut said) {
                prop_assert!(next != Next::Greet);
                if next == Next::Wait {
                    break;
                }
            }
        }
    }
}
