//! Connections to peers: the sockets, the packets on them, and [`Connector`], which connects peers
//! and ends their incarnations.

pub(crate) mod accept_limiter;
pub(crate) mod connection;
mod connector;
pub(crate) mod control;
pub(crate) mod directory;
pub(crate) mod discard;
pub(crate) mod liveness;
pub(crate) mod packet;
pub(crate) mod user;

pub(crate) use connector::{Connector, disconnect};
