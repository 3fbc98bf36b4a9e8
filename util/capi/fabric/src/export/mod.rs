//! libfabric's 17 functions.

pub mod discover;
mod log_c;
mod param;
pub mod print;
pub mod special;
mod tostr;

pub(crate) use print::strerror;
