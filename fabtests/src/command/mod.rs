//! The commands of `fabtests` beside those of `selvedge-bench`: arguments in, tables or JSON out.

pub mod bmi;
pub mod campaign;
pub mod compare;
pub mod crowd;
pub mod doctor;
pub mod run;
pub mod shmem;
