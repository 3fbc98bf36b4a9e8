//! Benchmarks of Selvedge's providers, and measurements of the machine's limits.
//!
//! The package has few dependencies, so that a clean checkout builds it soon and prints a first
//! table. `fabtests` includes the same commands.

pub mod buffer;
pub mod clock;
pub mod command;
pub mod comparison;
pub mod cpu;
pub mod fabric;
pub mod limits;
pub mod machine;
pub mod markup;
pub mod output;
pub mod pair;
pub mod plot;
pub mod progress;
pub mod size;
pub mod stats;
pub mod table;
pub mod timing;
