//! Benchmarks of Selvedge's providers, and measurements of the machine's limits.
//!
//! The package has few dependencies, so that a clean checkout builds it soon and prints a first
//! table. `fabtests` includes the same commands.

pub mod command;
pub mod comparison;
pub mod fabric;
pub mod limits;
pub mod machine;
mod measure;
pub mod output;
pub mod pair;
pub mod plot;

pub use machine::cpu;
pub use measure::{buffer, clock, size, stats, timing};
pub use output::{markup, progress, table};
