//! The tcp provider: endpoints of any hosts, over TCP, in libfabric's wire protocol.
//!
//! ```text
//!   endpoint A                                       endpoint B
//!   posts -> queue of the connection  == TCP ==>   reader of the connection -> receives, memory
//! ```
//!
//! Every peer has a connection, made at the first operation, with a queue of frames that go out and a
//! reader that takes frames apart. A stock libfabric at the other end sees its own
//! protocol and nothing else; two Selvedge endpoints know each other by their greetings, and then
//! have atomics, and answers that say why something was refused.
//!
//! What the provider promises is in docs/PROVIDERS.md, every byte on the wire in docs/WIRE.md, and
//! how the parts work together in docs/DECISIONS.md.
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
// What a peer sends never makes this process panic: what is expected in spite of that has a reason.
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
