//! Waits of the safe layer over every provider: parked threads, programs that poll(2) the
//! descriptor of an endpoint, and tokio.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod blocking;
mod descriptor;
mod transport;
#[path = "../owned/watchdog.rs"]
mod watchdog;

use transport::{PROVIDERS, Transport};

/// The number of messages that travel in each direction.
const ROUNDS: u64 = 100;

/// Runs a test over each provider, with a time limit.
fn over_each_provider(test: fn(&Transport)) {
    for provider in PROVIDERS {
        println!("{provider}");
        watchdog::under_watchdog(move || test(&Transport::open(provider)));
    }
}
