//! The suite that validates Selvedge's providers, and its tools. It stands on the benchmarks
//! (`selvedge-bench`), and has their commands beside its own.

pub mod bmi;
pub mod campaign;
pub mod command;
pub mod crowd;
pub mod doctor;
pub mod duel;
pub mod fi_info;
pub mod fi_strerror;
mod schedstat;
pub mod shmem;
pub mod suite;
pub mod upstream;
