//! The tcp provider: connects endpoints on any hosts over TCP, in libfabric's wire protocol.
//!
//! ```text
//!   endpoint A                                         endpoint B
//!   posts -> send queue of the connection  == TCP ==>  frame parser -> receives, memory
//! ```
//!
//! Each peer has one connection, which the first operation opens. The connection has a queue of
//! outgoing frames and a parser of incoming ones. A stock libfabric peer sees only its own
//! protocol. Two Selvedge endpoints recognise each other during the handshake; their connection
//! also carries atomics, and error responses with a reason.
//!
//! docs/PROVIDERS.md lists the provider's promises, docs/WIRE.md every byte on the wire, and
//! docs/DECISIONS.md how the parts work together.
//!
//! # Examples
//!
//! ```
//! use selvedge::{Caps, Hints, Registry};
//!
//! let registry = Registry::new().with(&selvedge_tcp::PROVIDER);
//! let info = registry.infos(&Hints::new().caps(Caps::TAGGED))?.remove(0);
//! let domain = info.open()?;
//! # drop(domain);
//! # Ok::<(), selvedge::Error>(())
//! ```

#![deny(missing_docs)]
// Bytes of a peer never make this process panic. Each exception has a reason.
#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable)
)]

mod accept;
mod config;
mod connection;
mod domain;
mod endpoint;
mod matching;
mod peers;
mod provider;
mod socket;
mod state;
mod wire;

pub use endpoint::Endpoint;
pub use provider::Tcp;

/// The provider, for a registry.
pub static PROVIDER: Tcp = Tcp;
