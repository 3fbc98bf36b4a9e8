//! The subcommands of `fabtests`: arguments in, tables or JSON out.

pub mod limits;
mod place;

pub use place::PlaceArgs;
