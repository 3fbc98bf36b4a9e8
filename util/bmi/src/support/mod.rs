//! The support library: what methods and the control layer are made of. Using it is up to a method.

pub mod gossip;
pub mod heap;
pub mod op_queue;
pub mod ops;
pub(crate) mod references;
