//! Orders to the two processes, and their replies: one JSON object per line.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fabric::{BenchOrder, OpenOrder};
use crate::limits::Probe;
use crate::measure::timing::{Counts, Timing};

/// An order to a process. Contestants in other languages read orders too and rely on the order of a
/// variant's fields, which is that of their declaration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Reply when the process is ready for orders.
    Ready,
    /// Take part in the measurement of a limit. The active process replies with an
    /// [`crate::limits::Outcome`].
    Probe(Probe, Counts),
    /// Open an endpoint. Both processes reply with an [`crate::fabric::Opened`].
    Open(OpenOrder),
    /// Send to the endpoint of the other process, which has this address.
    Peer(String),
    /// Exchange messages with the endpoints at these addresses: all senders to this process, or the
    /// receiver of its messages.
    Peers(Vec<String>),
    /// Run a benchmark. Both processes reply with a [`RunResult`]; the timing of one of them
    /// counts.
    Bench(BenchOrder),
    /// Take part in the wait for a message that the active process sends after this time. Both
    /// processes reply with a [`RunResult`]; the passive process's counts.
    Linger(Duration),
}

/// The result of a run. The reply of a contestant in another language has only the timing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunResult {
    /// The timing; zero in a process that does not measure.
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
    /// The order succeeded, with this result.
    Done(Value),
    /// The order failed, for this reason.
    Failed(String),
}
