//! Running benchmarks: which points, how often, by whom, and what is made of the results.

mod contestant;
mod draft;
mod libfabric;
mod memory;
mod opening;
mod plan;
mod rounds;
mod row;
pub mod stored;
mod throng;
mod versus;

pub use contestant::{Contestant, Measured, Runner};
pub use draft::Draft;
pub use libfabric::Libfabric;
pub use memory::MemoryUse;
pub use opening::Opening;
pub use plan::{Plan, Point};
pub use rounds::measure;
pub use row::{Report, Row, left_out};
pub use throng::{Pairs, Senders};
pub use versus::{Comparison, Judgement, Versus, versus};
