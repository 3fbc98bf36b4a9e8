//! libfabric's 17 functions, and the two of an external provider.

pub mod discover;
mod log_c;
mod param;
pub mod print;
pub mod provider;
pub mod special;
mod tostr;

pub(crate) use print::strerror;
