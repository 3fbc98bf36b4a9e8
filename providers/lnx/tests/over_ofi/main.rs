//! Messages between endpoints of one process, over a link of the system's libfabric. Tests that are
//! independent of the provider are files of the shm provider's tests; they run with lnx, which
//! `provider` opens. Without a libfabric they run over tcp, and other tests report that. Tests that
//! expect messages to arrive within a few polls are left out.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "not every helper is for every provider")]
#[path = "../../../shm/tests/messages/common.rs"]
mod common;
mod hosts;
#[expect(dead_code, reason = "not every helper is for every test")]
mod provider;
mod selection;
#[path = "../../../shm/tests/messages/shapes.rs"]
mod shapes;
#[path = "../../../shm/tests/messages/sources.rs"]
mod sources;
#[path = "../../../shm/tests/messages/truncation.rs"]
mod truncation;
#[path = "../../../shm/tests/messages/verbs.rs"]
mod verbs;
