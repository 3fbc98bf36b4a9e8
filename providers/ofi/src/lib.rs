//! The ofi provider: the providers of a libfabric of the system, behind the object model.
//!
//! The provider is off until `FI_OFI_LIBRARY` names a library, or is `system`. The provider loads
//! that library once, never unloads it, and offers the library's providers (verbs, efa, cxi, psm3,
//! tcp ..) under their own names with one more layer: `tcp;ofi`, `verbs;ofi_rxm;ofi`. Every object
//! wraps one of the library's objects, which it calls through the tables of its handle, as a C
//! program does. docs/PROVIDERS.md lists the few features that the provider emulates.
//!
//! # Examples
//!
//! ```
//! use selvedge::{Caps, Hints, Registry};
//!
//! let registry = Registry::new().with(&selvedge_ofi::PROVIDER);
//! let hints = Hints::new().caps(Caps::TAGGED).provider("tcp;ofi");
//! match registry.infos(&hints) {
//!     Ok(infos) => println!("{} infos", infos.len()),
//!     Err(error) => println!("{error}"),
//! }
//! ```

#![deny(missing_docs)]

mod contexts;
mod domain;
mod endpoint;
mod fabric;
mod library;
mod object;
mod open_objects;
mod provider;

pub use provider::Ofi;

/// The provider, for a registry.
pub static PROVIDER: Ofi = Ofi;
