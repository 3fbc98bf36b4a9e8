//! Sight: what another process of the same user sees of an endpoint.
//!
//! Every endpoint has a [`StatsPage`] of shared memory, in which it counts what it does and writes down
//! now and then how things stand: queue depths, peers, what is waited for. It is an anonymous memory
//! file, found by its name under `/proc/PID/fd`, so the page is gone when the process is, however
//! that ended, and nobody but the processes of the same user gets at it. `fi_top` reads pages.
//!
//! Whoever asks for it gets sheets of the same kind beside it: [`latency::Latency`], how long operations
//! took, and [`calls::Calls`], the last of them; an endpoint with collectives has [`groups::Groups`],
//! what it waits for in those.
//!
//! Who counts is alone: plain loads and stores of words that nobody else writes. What stands there
//! is never read back, so whatever a reader did to a page would change no endpoint's mind.
//!
//! Not here: who the readers are, and what they make of it.

pub mod calls;
pub mod crash;
mod flight;
pub mod groups;
pub mod latency;
pub mod layout;
pub mod seqlock;
mod settings;
mod shared_words;
mod snapshot;
mod stats;
mod stats_page;

pub use flight::{Event, EventKind};
pub use layout::{OpCounter, PeerState, ProtocolCounter, TimedOp};
pub use settings::Settings;
pub use shared_words::{endpoint_name, now};
pub use snapshot::{Gauge, PeerSnapshot, SnapshotWriter};
pub use stats::{PageHeader, PeerStats, PostedReceive, SourcePeer, Stats, UnexpectedMessage};
pub use stats_page::StatsPage;
