//! The support library: building blocks for methods and the control layer. Methods may do without.

pub mod gossip;
pub mod heap;
pub mod op_queue;
pub mod ops;
pub(crate) mod references;
