//! The subcommands of `fabtests`: arguments in, tables or JSON out.

pub mod bench;
pub mod campaign;
pub mod crowd;
pub mod doctor;
pub mod limits;
mod lineup;
pub mod pingpong;
mod place;
mod print;
pub mod run;
mod terminals;

pub use place::PlaceArgs;
