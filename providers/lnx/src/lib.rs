//! The lnx provider: one endpoint over two others, its *links*: the *near* one for peers on this
//! host and the *far* one for all others. libfabric has a provider of this name and purpose.
//!
//! ```text
//!   endpoint ── matching ──┬── near: an endpoint over, say, shm
//!                          └── far:  an endpoint over, say, tcp
//! ```
//!
//! The links can be of any two providers with unconnected endpoints, messages and tags. lnx matches
//! receives itself, so a receive for any source takes the first message of either link, and
//! messages of one sender stay in order. A small message travels with its header in one message of
//! the link. The header of a large message travels first. When lnx has matched the receive, the
//! bytes follow directly into the receive's memory.
//!
//! docs/PROVIDERS.md has the guarantees of the provider, docs/WIRE.md the frames on the links.

#![deny(missing_docs)]

mod av;
mod config;
mod domain;
mod endpoint;
mod limits;
mod link;
mod mr;
mod name;
mod provider;
mod state;
mod wire;

pub use endpoint::Endpoint;
pub use provider::Lnx;
