//! Endpoints of one process over the loopback: connections, memory, peers that come and go.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod addresses;
mod connections;
mod hostile;
mod keys;
mod log_lines;
mod memory;
mod peers;
mod provider;
mod side;

/// What every endpoint is opened with, besides what its test asks for.
fn variables() -> Vec<(&'static str, String)> {
    // Tests run at the same time: the warnings that one of them causes leave room for another's.
    vec![("FI_TCP_LOG_RATE", "1000000".to_owned())]
}
