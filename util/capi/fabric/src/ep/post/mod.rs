//! Posts to endpoints: the tables of functions that post, and the conversion of C's arguments to
//! operations.

pub(crate) mod atomic;
pub(crate) mod collective;
pub(crate) mod deferred;
mod forms;
pub(crate) mod lists;
pub(crate) mod message;
pub(crate) mod msg;
pub(crate) mod rma;
pub(crate) mod tagged;
mod trigger;
