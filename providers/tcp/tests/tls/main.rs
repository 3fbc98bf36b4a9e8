//! Connections in TLS: everything as without it, unreadable on the way, and none with whom it does
//! not suit.

#![cfg(feature = "tls")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod buffered;
#[path = "../one_process/connections.rs"]
mod connections;
mod doors;
mod keys;
#[path = "../processes/killed.rs"]
mod killed;
#[path = "../one_process/log_lines.rs"]
mod log_lines;
#[path = "../one_process/memory.rs"]
mod memory;
#[path = "../processes/other.rs"]
mod other;
mod papers;
mod parameters;
#[path = "../one_process/peers.rs"]
mod peers;
mod processes;
#[path = "../one_process/provider.rs"]
mod provider;
mod refusals;
#[path = "../one_process/side.rs"]
mod side;
#[path = "../processes/sleepers.rs"]
mod sleepers;
mod wire;

/// What every endpoint is opened with, besides what its test asks for.
fn variables() -> Vec<(&'static str, String)> {
    papers::usual().variables()
}

/// The same in a process that a test starts: it has a certificate of its own.
fn variables_of_another() -> Vec<(&'static str, String)> {
    papers::authority().papers().variables()
}
