//! The lnx provider: one endpoint over two others, the *near* one for peers on this host and the
//! *far* one for all others. libfabric has a provider of this name and purpose.
//!
//! ```text
//!   endpoint ── matching ──┬── near: an endpoint over, say, shm
//!                          └── far:  an endpoint over, say, tcp
//! ```
//!
//! It knows neither of the two: any providers of unconnected endpoints with messages and tags do.
//! Receives are matched here and nowhere else, so that one for any source takes whatever message
//! comes first, and the order of each sender is kept. A small message travels with its header in one
//! message of the link; of a large one the header travels, and its bytes follow, straight into the
//! memory of the receive, when that is known.
//!
//! What the provider promises is in docs/PROVIDERS.md, what is said on the links in docs/WIRE.md.

#![deny(missing_docs)]

mod arrive;
mod av;
mod config;
mod domain;
mod endpoint;
mod link;
mod memory;
mod mirror;
mod mr;
mod name;
mod post;
mod progress;
mod provider;
mod state;
mod wire;

pub use endpoint::Endpoint;
pub use provider::Lnx;
