//! What the two processes are told, and what they reply: one JSON object per line.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fabric::{BenchOrder, OpenOrder};
use crate::limits::Probe;
use crate::timing::Counts;

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
    /// Take part in a run of a benchmark; the active process replies a [`crate::timing::Timing`].
    Bench(BenchOrder),
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
