//! The suite that validates Selvedge's providers, its tools and its benchmarks.

pub mod bmi;
pub mod buffer;
pub mod campaign;
mod child;
pub mod clock;
pub mod command;
pub mod comparison;
pub mod cpu;
pub mod crowd;
pub mod doctor;
pub mod fabric;
pub mod fi_info;
pub mod fi_strerror;
pub mod limits;
pub mod machine;
pub mod markup;
pub mod output;
pub mod pair;
pub mod plot;
pub mod progress;
pub mod shmem;
pub mod size;
pub mod stats;
pub mod suite;
pub mod table;
pub mod timing;
pub mod upstream;
