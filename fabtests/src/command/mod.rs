//! The commands of `fabtests`, in addition to those of `selvedge-bench`: arguments in, tables or
//! JSON out.

pub mod ab_run;
pub mod bmi;
pub mod campaign;
pub mod compare;

pub mod doctor;
pub mod run;
pub mod scale;
pub mod shmem;
