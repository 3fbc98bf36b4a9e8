//! `Server`: a server over either interface, and the requests that it has counted.

use std::collections::HashMap;
use std::time::Duration;

/// A server over either interface.
pub(super) trait Server {
    /// Returns the address that clients connect to.
    fn address(&self) -> anyhow::Result<String>;

    /// Takes the requests that have arrived, or waits up to [`IDLE`] for some, and responds to
    /// each.
    fn serve_requests(&mut self, counts: &mut Counts) -> anyhow::Result<()>;
}

/// How long a server waits for requests, and a client for responses, in one call.
pub(super) const IDLE: Duration = Duration::from_millis(10);
/// Maximum number of requests, or completions, that are taken at once.
pub(super) const BATCH: usize = 64;

/// Number of requests of each client, by the server's identifier of it.
#[derive(Debug, Default)]
pub(super) struct Counts(pub(super) HashMap<u64, u64>);

impl Counts {
    pub(super) fn count(&mut self, client: u64) {
        *self.0.entry(client).or_default() += 1;
    }
}
