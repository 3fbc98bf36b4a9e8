//! The commands: arguments in, tables or JSON out.

pub mod bench;
pub mod compare;
mod csv;
mod interrupt;
pub mod limits;
mod lineup;
pub mod pingpong;
mod place;
pub mod plot;
mod print;
mod terminals;

pub use place::PlaceArgs;
