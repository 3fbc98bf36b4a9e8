//! The completion queue, and the trait of the endpoints that it drives.

mod ring;
mod sink;
mod slot;
mod store;

pub use super::progress::Progress;
pub use ring::CqRing;
pub use sink::Sink;
