//! The engine of a context: progresses operations, rings bells, and queues invocations. It runs no
//! code of the application; the caller takes invocations from its inbox.
//!
//! All work is done on the calling thread, which has exclusive access: `core::state_cell`.

mod barrier;
mod dispatch;
mod ops;
pub(crate) mod parts;
mod peer_failure;
mod progress;
mod registration;
mod send;
mod state;

pub(crate) use ops::op::{Get, Invocation, InvokeTarget, Put};
pub(crate) use parts::parcel::{Bytes, Parcel};
pub(crate) use state::{Engine, ExitLookup, PeerAddress};
