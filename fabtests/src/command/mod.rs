//! The subcommands of `fabtests`: arguments in, tables or JSON out.

pub mod bench;
pub mod bmi;
pub mod campaign;
pub mod compare;
pub mod crowd;
mod csv;
pub mod doctor;
mod interrupt;
pub mod limits;
mod lineup;
pub mod pingpong;
mod place;
pub mod plot;
mod print;
pub mod reports;
pub mod run;
pub mod shmem;
mod terminals;

pub use place::PlaceArgs;
