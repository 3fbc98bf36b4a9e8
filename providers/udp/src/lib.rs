//! The udp provider: datagrams between any hosts, as libfabric's udp sends them.
//!
//! Each message is one datagram without any header, so that every UDP socket can be a peer.
//! Datagrams may be lost, duplicated and reordered; one that arrives is complete. The socket is
//! read only while a receive is posted; until then the kernel buffers datagrams, up to its limit.
//!
//! docs/PROVIDERS.md lists the provider's promises.
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
