//! The method control layer: selects the method for each peer and address, and offers one
//! thread-safe interface to all methods.
//!
//! The layer copies a payload only if it is a segment list and the method does not support lists
//! ([`pack`]).

mod bmi;
mod info;
mod method_instance;
mod open;
mod pack;
mod parking;
pub(crate) mod post;
pub(crate) mod queues;
mod test;
mod wait;

pub use bmi::{Bmi, Config};
pub use info::Limit;
pub use open::transports;
pub use post::{Post, Posted};
pub use test::WAIT;
