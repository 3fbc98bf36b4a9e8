//! Orders to the two processes, and their replies: one JSON object per line.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fabric::{BenchOrder, OpenOrder};
use crate::limits::Probe;
use crate::timing::{Counts, Timing};

/// An order. Contestants in other languages read it too: a variant's fields are written in the
/// order of their declaration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Reply once the process is set up.
    Ready,
    /// Take part in the measurement of a limit; the active process replies an
    /// [`crate::limits::Outcome`].
    Probe(Probe, Counts),
    /// Open an endpoint; both processes reply an [`crate::fabric::Opened`].
    Open(OpenOrder),
    /// The address of the other process's endpoint.
    Peer(String),
    /// The addresses of all processes that send messages to this one, or the one to send to.
    Peers(Vec<String>),
    /// Run a benchmark; both processes reply a [`RunResult`], and one of them has measured.
    Bench(BenchOrder),
    /// The passive process waits for a message that arrives after this time; it replies a
    /// [`RunResult`].
    Linger(Duration),
}

/// The result of a run. Contestants in other languages reply the timing alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunResult {
    /// The timing, of the process that measures.
    #[serde(flatten)]
    pub timing: Timing,
    /// Start of the run, in nanoseconds of a clock that all processes share.
    pub began_ns: u64,
    /// End of the run, by the same clock.
    pub ended_ns: u64,
    /// Processor time of the process during the run, in nanoseconds.
    pub cpu_ns: u64,
}

impl RunResult {
    /// Duration of the run, in nanoseconds.
    pub fn taken_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.began_ns)
    }
}

/// The reply to an [`Order`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The order is done, with this result.
    Done(Value),
    /// The order failed, for this reason.
    Failed(String),
}
