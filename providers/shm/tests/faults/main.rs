//! Faults, with real processes: peers that are absent, killed, stopped, out of a resource, closing
//! or hostile. No process may hang, crash, leak or disturb others, and every operation completes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod atomics;
mod auto;
mod claimed;
mod closing;
mod connect;
mod contexts;
mod denial;
mod direct;
mod directory;
mod endpoint;
mod fork;
mod hostile;
mod keys;
mod lent;
mod log;
mod namespaces;
mod parking;
mod peer_failure;
mod peer_process;
mod placement;
mod process;
mod shortage;
mod special;
mod states;
mod unauthenticated;
mod vectors;
mod writers;

/// The peer process of the tests, which serves the requests of its standard input.
#[test]
#[ignore = "started by other tests"]
fn peer_process() {
    peer_process::serve_requests();
}
