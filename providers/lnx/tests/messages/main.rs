//! Messages between endpoints of one process. Tests that are independent of the provider are files
//! of the shm provider's tests; they run with lnx, which `provider` opens.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod both;
#[expect(dead_code, reason = "not every helper is for every provider")]
#[path = "../../../shm/tests/messages/common.rs"]
mod common;
#[path = "../../../shm/tests/messages/completions.rs"]
mod completions;
#[path = "../../../shm/tests/messages/counters.rs"]
mod counters;
mod hostile;
#[path = "../../../tcp/tests/messages/lent.rs"]
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
#[path = "../../../shm/tests/messages/shapes.rs"]
mod shapes;
#[path = "../../../shm/tests/messages/sources.rs"]
mod sources;
#[path = "../../../shm/tests/messages/truncation.rs"]
mod truncation;
#[path = "../../../shm/tests/messages/verbs.rs"]
mod verbs;
