//! `Attempts`: a client's attempts to connect, and their outcome.

use std::task::Waker;
use std::time::{Duration, Instant};

use selvedge::FiAddr;

use crate::Error;
use crate::port::Key;

/// A client's attempts to connect to one of several addresses.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// The server's addresses: port, index in its address vector, text.
    pub(super) targets: Vec<(usize, FiAddr, String)>,
    pub(super) next: usize,
    pub(super) nonce: u64,
    /// When the next attempt begins.
    pub(super) next_at: Option<Instant>,
    pub(super) deadline: Option<Instant>,
    timeout: Duration,
    /// The reason why the last attempt failed.
    pub(super) reason: String,
    pub(super) outcome: Option<Result<Key, Error>>,
    pub(super) waker: Option<Waker>,
}

impl Attempts {
    pub(super) fn new(
        targets: Vec<(usize, FiAddr, String)>,
        nonce: u64,
        timeout: Duration,
    ) -> Self {
        Self {
            targets,
            nonce,
            deadline: Instant::now().checked_add(timeout),
            timeout,
            reason: "it is silent".to_owned(),
            ..Self::default()
        }
    }

    /// The error when the time is over.
    pub(super) fn expired(&self) -> Error {
        let texts: Vec<_> = self.targets.iter().map(|(_, _, text)| &**text).collect();
        Error::NoServer {
            address: texts.join(","),
            timeout: self.timeout,
            reason: self.reason.clone(),
        }
    }
}
