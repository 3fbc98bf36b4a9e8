//! Peers: their addresses, and the proof that they have the same authorization key.

pub mod auth;
pub mod av;
pub mod ip;
