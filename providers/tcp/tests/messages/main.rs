//! Messages between endpoints of one process. The provider-independent tests are files of the shm
//! provider's tests, which use this provider through `provider`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "not every helper is for every provider")]
#[path = "../../../shm/tests/messages/common.rs"]
mod common;
#[path = "../../../shm/tests/messages/completions.rs"]
mod completions;
#[path = "../../../shm/tests/messages/contexts.rs"]
mod contexts;
#[path = "../../../shm/tests/messages/counters.rs"]
mod counters;
mod lent;
#[path = "../../../shm/tests/messages/matching.rs"]
mod matching;
#[path = "../../../shm/tests/messages/model.rs"]
mod model;
#[path = "../../../shm/tests/messages/multi.rs"]
mod multi;
#[path = "../../../shm/tests/messages/peek.rs"]
mod peek;
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
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}
