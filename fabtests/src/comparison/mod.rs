//! Running benchmarks: which points, how often, by whom, and what is made of the results.

mod contestant;
mod libfabric;
mod memory;
mod plan;
mod rounds;
mod row;
mod throng;

pub use contestant::{Contestant, Measured, Runner};
pub use libfabric::Libfabric;
pub use memory::MemoryUse;
pub use plan::{Plan, Point};
pub use rounds::measure;
pub use row::{Report, Row};
pub use throng::{Pairs, Senders};
