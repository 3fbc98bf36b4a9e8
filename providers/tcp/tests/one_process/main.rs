//! Endpoints of one process over the loopback interface: connections, memory, and peers that
//! connect and disconnect.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod addresses;
mod connections;
mod endpoint;
mod hostile;
mod keys;
mod log_lines;
mod memory;
mod peers;
mod provider;

/// Parameters of every endpoint, beside those of its test.
fn variables() -> Vec<(&'static str, String)> {
    // Tests run in parallel: with a high limit, the warnings of one test do not suppress the
    // warnings of another.
    vec![("FI_TCP_LOG_RATE", "1000000".to_owned())]
}
