//! Connections in TLS: everything as without it, unreadable on the way, and none with whom it does
//! not suit.

#![cfg(feature = "tls")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod buffered;
mod certificates;
#[path = "../processes/child_process.rs"]
mod child_process;
#[path = "../one_process/connections.rs"]
mod connections;
mod keys;
#[path = "../processes/killed.rs"]
mod killed;
#[path = "../one_process/log_lines.rs"]
mod log_lines;
#[path = "../one_process/memory.rs"]
mod memory;
mod parameters;
#[path = "../processes/parked.rs"]
mod parked;
#[path = "../one_process/peers.rs"]
mod peers;
mod processes;
#[path = "../one_process/provider.rs"]
mod provider;
mod refusals;
#[path = "../one_process/side.rs"]
mod side;
mod unauthenticated;
mod wire;

/// What every endpoint is opened with, besides what its test asks for.
fn variables() -> Vec<(&'static str, String)> {
    certificates::default_certificate().variables()
}

/// The same in a process that a test starts: it has a certificate of its own.
fn child_variables() -> Vec<(&'static str, String)> {
    certificates::authority().issue().variables()
}
