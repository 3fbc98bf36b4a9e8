//! Comparisons: the points and contestants that are measured, the order of runs, and the report.

mod concurrent;
mod contestant;
mod draft;
mod external;
mod memory;
mod opening;
mod plan;
mod rounds;
mod row;
pub mod stored;
mod versus;

pub use concurrent::{Pairs, Receivers, Ring, Senders};
pub use contestant::{Contestant, Measured, Runner};
pub use draft::Draft;
pub use external::{BuiltProgram, CompiledProgram, Mpi};
pub use memory::MemoryUse;
pub use opening::Opening;
pub use plan::{Plan, Point};
pub use rounds::measure;
pub use row::{Report, Row, left_out};
pub use versus::{Change, Comparison, Versus, compare_reports};
