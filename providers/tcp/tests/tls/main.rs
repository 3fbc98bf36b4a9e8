//! TLS: the provider's tests over TLS, the encryption on the wire, and rejected peers.

#![cfg(feature = "tls")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod buffered;
mod certificates;
#[path = "../processes/child_process.rs"]
mod child_process;
#[path = "../one_process/connections.rs"]
mod connections;
#[path = "../one_process/endpoint.rs"]
mod endpoint;
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
mod unauthenticated;
mod wire;

/// Parameters of every endpoint, beside those of its test.
fn variables() -> Vec<(&'static str, String)> {
    certificates::default_certificate().variables()
}

/// Parameters of every endpoint in a process that a test starts. Each process has its own
/// certificate.
fn child_variables() -> Vec<(&'static str, String)> {
    certificates::authority().issue().variables()
}
