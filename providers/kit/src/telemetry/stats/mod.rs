//! The statistics page of an endpoint: its counters, its periodic snapshot and its last events, as
//! the endpoint writes them and as other processes read them.

mod flight;
mod page;
mod reader;
mod snapshot;

pub use flight::{Event, EventKind};
pub use page::StatsPage;
pub use reader::{PeerStats, PostedReceive, SourcePeer, Stats, UnexpectedMessage};
pub use snapshot::{Gauge, PeerSnapshot, SnapshotWriter};
