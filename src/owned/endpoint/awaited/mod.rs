//! Awaited operations: [`AsyncEndpoint`] and its futures.

mod async_core;
mod async_endpoint;
mod backlog;
mod claim;
mod lending;
mod message_queue;
mod messages;
mod operation;
mod parking;
mod stage;
mod waiter;

pub use async_endpoint::AsyncEndpoint;
pub use claim::{Claim, Claiming};
pub use lending::Viewing;
pub use messages::Messages;
pub use operation::{Receiving, Sending};
