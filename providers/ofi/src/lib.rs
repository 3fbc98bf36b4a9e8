//! The ofi provider: what a libfabric of the system has, through the object model.
//!
//! It is off until `FI_OFI_LIBRARY` names a library, or is `system`. That library is loaded once and
//! for good, and its providers (verbs, efa, cxi, psm3, tcp ..) are offered under their own names
//! with one more layer: `tcp;ofi`, `verbs;ofi_rxm;ofi`. Every object here is one of that library's,
//! reached through the tables of its handles as a program in C reaches it; nothing is emulated but
//! what docs/PROVIDERS.md says.
//!
//! # Examples
//!
//! ```
//! use selvedge::{Caps, Hints, Registry};
//!
//! let registry = Registry::new().with(&selvedge_ofi::PROVIDER);
//! let hints = Hints::new().caps(Caps::TAGGED).provider("tcp;ofi");
//! match registry.infos(&hints) {
//!     Ok(infos) => println!("{} ways to communicate", infos.len()),
//!     Err(error) => println!("{error}"),
//! }
//! ```

#![deny(missing_docs)]

mod answers;
mod av;
mod cm;
mod cntr;
mod contexts;
mod cq;
mod descriptor;
mod domain;
mod endpoint;
mod environment;
mod eq;
mod fabric;
mod library;
mod mr;
mod names;
mod object;
mod opened;
mod pep;
mod post;
mod provider;

pub use provider::Ofi;

/// The provider, for a registry.
pub static PROVIDER: Ofi = Ofi;
