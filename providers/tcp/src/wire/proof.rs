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
//! The proofs themselves are [`selvedge_kit::auth::proof`]'s.

#![cfg_attr(
    not(test),
    deny(clippy::arithmetic_side_effects, clippy::indexing_slicing)
)]

use selvedge_kit::auth::AuthKey;
use selvedge_kit::auth::proof::{self, BLOCK_LEN, Block, Mismatch};

use crate::wire::Nonsense;

/// What a connection begins with whose caller has a key.
pub(crate) const QUESTION: [u8; 8] = *b"SLVGKEY2";

/// The side that has begun the connection.
#[derive(Debug)]
pub(crate) struct Caller(proof::Initiator);

/// What a caller does now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More bytes have to come.
    Wait,
    /// Its proof is sent.
    Prove(Block),
    /// The listener has proved that it has the key.
    Greet,
}

/// The listener's side.
#[derive(Debug)]
pub(crate) struct Called(proof::Responder);

impl Caller {
    /// Begins: what is to be sent.
    pub(crate) fn ask() -> (Self, Vec<u8>) {
        let (caller, nonce) = proof::Initiator::start();
        (Self(caller), [&QUESTION[..], &nonce].concat())
    }

    /// Takes what it needs from the front of the listener's bytes.
    ///
    /// # Errors
    /// When the listener does not have the key.
    pub(crate) fn hear(&mut self, key: &AuthKey, said: &mut Vec<u8>) -> Result<Next, Nonsense> {
        let Some(&word) = said.first_chunk::<BLOCK_LEN>() else {
            return Ok(Next::Wait);
        };
        said.drain(..BLOCK_LEN);
        match self.0.receive(key, &word).map_err(another_key)? {
            proof::Step::SendProof(proof) => Ok(Next::Prove(proof)),
            proof::Step::Done => Ok(Next::Greet),
        }
    }
}

impl Called {
    /// What whoever comes has to prove.
    pub(crate) fn of(key: &AuthKey) -> Self {
        Self(proof::Responder::new(key))
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
        let prefix = match &self.0 {
            proof::Responder::AwaitNonce => &QUESTION[..],
            proof::Responder::AwaitProof { .. } => &[],
            proof::Responder::Verified => return Ok(None),
        };
        if said.iter().zip(prefix).any(|(said, asked)| said != asked) {
            return Err(Nonsense("something else than that it has the auth_key"));
        }
        let word = said.get(prefix.len()..);
        let Some(word) = word.and_then(<[u8]>::first_chunk::<BLOCK_LEN>) else {
            return Ok(None);
        };
        let answer = self.0.receive(key, word).map_err(another_key)?;
        said.drain(..prefix.len().saturating_add(BLOCK_LEN));
        Ok(Some(answer.to_vec()))
    }

    pub(crate) fn is_convinced(&self) -> bool {
        self.0.is_verified()
    }
}

fn another_key(_: Mismatch) -> Nonsense {
    Nonsense("that it has another auth_key")
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
        let mut called = Called::of(others);
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

    #[test]
    fn a_proof_of_the_other_side_or_of_another_connection_is_none() {
        let key = key(b"secret");
        let (mut caller, mut said) = Caller::ask();
        let mut called = Called::of(&key);
        let mut nonce = called.hear(&key, &mut said).unwrap().unwrap();
        let Next::Prove(proof) = caller.hear(&key, &mut nonce).unwrap() else {
            panic!("a nonce has come");
        };
        // The caller's own proof, sent back to it.
        caller.hear(&key, &mut proof.to_vec()).unwrap_err();
        let (mut stranger, mut said) = Caller::ask();
        let mut other = Called::of(&key);
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
        let mut called = Called::of(&key);
        let nonce = called.hear(&key, &mut said).unwrap().unwrap();
        assert_eq!(nonce.len(), BLOCK_LEN);
        assert!(called.hear(&key, &mut vec![7; BLOCK_LEN]).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_convince_nobody(said: Vec<u8>, at in 0_usize..=40) {
            let key = key(b"secret");
            let (mut caller, asked) = Caller::ask();
            let mut called = Called::of(&key);
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
