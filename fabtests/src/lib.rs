//! The suite that validates Selvedge's providers, and its tools. It builds on the benchmarks
//! (`selvedge-bench`), and has their commands besides its own.

pub mod bmi;
pub mod campaign;
pub mod command;

pub mod doctor;

pub mod fi_info;
pub mod scale;
pub mod shmem;
pub mod suite;
pub mod upstream;
