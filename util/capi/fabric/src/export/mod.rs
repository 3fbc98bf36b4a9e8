//! The 17 functions that the library exports.
//!
//! The linker's script makes the version nodes, and `symbols` the names in them: Rust has no
//! spelling for a symbol's version.

mod discover;
mod print;
mod special;
mod symbols;

pub(crate) use print::strerror;
