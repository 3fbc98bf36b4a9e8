//! The udp provider: datagrams between any hosts, as libfabric's udp sends them.
//!
//! A message is a datagram and a datagram a message: nothing is added, so that everybody who sends
//! and receives datagrams is a peer. They may be lost, doubled and overtaken; those that come are
//! whole. Nothing is read while no receive is posted: the kernel keeps what comes, up to its limit.
//!
//! What the provider promises is in docs/PROVIDERS.md.
//!
//! # Examples
//!
//! ```
//! use selvedge::info::EpType;
//! use selvedge::{Caps, Hints, Registry};
//!
//! let registry = Registry::new().with(&selvedge_udp::PROVIDER);
//! let hints = Hints::new().caps(Caps::MSG).ep_type(EpType::Dgram);
//! let info = registry.infos(&hints)?.remove(0);
//! let domain = info.open()?;
//! # drop(domain);
//! # Ok::<(), selvedge::Error>(())
//! ```

#![deny(missing_docs)]

mod config;
mod domain;
mod endpoint;
mod group;
mod post;
mod provider;
mod socket;
mod state;

pub use endpoint::Endpoint;
pub use provider::Udp;

/// The provider, for a registry.
pub static PROVIDER: Udp = Udp;
