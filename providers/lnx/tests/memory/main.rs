//! Access to peers' memory over both links, and killed peers on both links.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "not every helper is for every provider")]
#[path = "../../../tcp/tests/one_process/endpoint.rs"]
mod endpoint;
mod killed;
#[path = "../../../tcp/tests/one_process/memory.rs"]
mod memory;
mod named;
mod order;
mod provider;

/// The environment of every endpoint, in addition to the test's.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}
