//! The commands: they parse arguments and print tables or JSON.

mod baseline;
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

pub use placement::PlacementArgs;
