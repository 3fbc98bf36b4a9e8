//! TLS 1.3 over the connections of an endpoint: who we are and whom we believe ([`Identity`]), and
//! the records of one connection ([`Session`]).
//!
//! It is between the socket and everything else: greetings, proofs of an authorization key and
//! frames are what they are without it. Both ends show a certificate, and both check the other's.
//! Nothing is resumed: each connection is made with certificates that are good at the time.

mod identity;
mod session;

pub(crate) use identity::{Identity, identity};
pub(crate) use session::Session;
