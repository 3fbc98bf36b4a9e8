//! The 17 functions that the library exports.
//!
//! The linker script defines the version nodes, and `symbols` the names in them in assembler,
//! because Rust has no syntax for a symbol's version.

mod discover;
mod log_c;
mod param;
mod print;
mod special;
mod symbols;
mod tostr;

pub(crate) use print::strerror;
