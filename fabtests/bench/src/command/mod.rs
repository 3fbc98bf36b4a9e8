//! The commands: they parse arguments and print tables or JSON.

pub mod bench;
pub mod compare;
mod contestants;
mod csv;
mod interrupt;
pub mod limits;
pub mod pingpong;
mod placement;
pub mod plot;
mod print;
mod terminals;

pub use placement::PlacementArgs;
