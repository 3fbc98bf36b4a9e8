//! Faults, with real processes: peers that are absent, killed, stopped, short of something, closing
//! or hostile. Nothing may hang, crash, leak or disturb others, and every operation completes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod atomics;
mod auto;
mod closing;
mod contact;
mod contexts;
mod death;
mod denial;
mod direct;
mod directory;
mod fork;
mod held;
mod hostile;
mod keys;
mod log;
mod namespaces;
mod process;
mod puppet;
mod shortage;
mod side;
mod sleep;
mod special;
mod states;
mod strangers;
mod vectors;

/// Not a test: the other process of the tests, which obeys what it is told over its standard input.
#[test]
#[ignore = "started by other tests"]
fn puppet() {
    puppet::obey();
}
