//! What the two processes are told, and what they reply: one JSON object per line.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fabric::{BenchOrder, OpenOrder};
use crate::limits::Probe;
use crate::timing::{Counts, Timing};

/// One order. Contestants in other languages read it too: a variant's fields are written in the
/// order of their declaration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Reply when set up.
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
    /// Take part in a run of a benchmark; both processes reply a [`Ran`], and one of them has
    /// measured.
    Bench(BenchOrder),
    /// The passive process waits for a message that comes after this time; it replies a [`Ran`].
    Linger(Duration),
}

/// What became of a run. Contestants in other languages reply the timing alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ran {
    /// What was measured, by whoever measures.
    #[serde(flatten)]
    pub timing: Timing,
    /// When it began and ended, in nanoseconds of a clock that all processes have in common.
    pub began_ns: u64,
    /// As above.
    pub ended_ns: u64,
    /// Processor time of the process meanwhile.
    pub cpu_ns: u64,
}

impl Ran {
    /// How long it took.
    pub fn taken_ns(&self) -> u64 {
        self.ended_ns.saturating_sub(self.began_ns)
    }
}

/// The answer to an [`Order`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// It is done, with this result.
    Done(Value),
    /// It could not be done, for this reason.
    Failed(String),
}
