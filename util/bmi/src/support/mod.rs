//! The support library: building blocks of methods and the control layer. A method may use it or
//! not.

pub mod gossip;
pub mod heap;
pub mod op_queue;
pub mod ops;
pub(crate) mod references;
