//! Telemetry: the state of an endpoint in shared memory, readable by other processes of the same
//! user.
//!
//! Every endpoint has a [`StatsPage`], in which it counts its operations and periodically writes a
//! snapshot: queue depths, peers, posted receives. The page is an anonymous memory file, which
//! readers find under `/proc/PID/fd`. The system frees the page at the end of the process, also
//! after a crash. Only processes of the same user can open the page. `fi_top` reads the pages.
//!
//! Further pages of the same kind exist on request: [`latency::LatencyRecorder`] has the durations
//! of operations, and [`calls::CallRecorder`] the last calls. An endpoint with collectives has
//! [`groups::GroupRecorder`], the collectives that are pending.
//!
//! Each word has one writer, which uses plain loads and stores. The endpoint never reads its pages
//! for a decision, so a reader that writes to a page cannot change the endpoint's behaviour.
//!
//! This module does not contain the readers' user interface.

pub mod calls;
pub mod crash;
pub mod groups;
pub mod latency;
pub mod layout;
mod page_copy;
pub mod rate_limit;
pub mod seqlock;
mod settings;
mod shared_words;
mod stats;

pub use layout::{OpCounter, PeerState, ProtocolCounter, TimedOp};
pub use page_copy::PageHeader;
pub use settings::Settings;
pub use shared_words::{endpoint_name, now};
pub use stats::{
    Event, EventKind, Gauge, PeerSnapshot, PeerStats, PostedReceive, SnapshotWriter, SourcePeer,
    Stats, StatsPage, UnexpectedMessage,
};
