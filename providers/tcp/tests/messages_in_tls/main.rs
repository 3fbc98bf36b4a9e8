//! The tests of `messages`, with every connection in TLS.

#![cfg(feature = "tls")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[path = "../tls/certificates.rs"]
mod certificates;
#[expect(dead_code, reason = "not every helper is for every provider")]
#[path = "../../../shm/tests/messages/common.rs"]
mod common;
#[path = "../../../shm/tests/messages/completions.rs"]
mod completions;
#[path = "../../../shm/tests/messages/contexts.rs"]
mod contexts;
#[path = "../../../shm/tests/messages/counters.rs"]
mod counters;
#[path = "../../../shm/tests/messages/matching.rs"]
mod matching;
#[path = "../../../shm/tests/messages/model.rs"]
mod model;
#[path = "../../../shm/tests/messages/multi.rs"]
mod multi;
#[path = "../../../shm/tests/messages/peek.rs"]
mod peek;
#[path = "../messages/provider.rs"]
mod provider;
#[path = "../../../shm/tests/messages/sets.rs"]
mod sets;
#[path = "../../../shm/tests/messages/shapes.rs"]
mod shapes;
#[path = "../../../shm/tests/messages/shared.rs"]
mod shared;
#[path = "../../../shm/tests/messages/sources.rs"]
mod sources;
#[path = "../../../shm/tests/messages/truncation.rs"]
mod truncation;
#[path = "../../../shm/tests/messages/verbs.rs"]
mod verbs;

/// Parameters of every endpoint, beside those of its test.
fn variables() -> Vec<(&'static str, String)> {
    certificates::default_certificate().variables()
}
