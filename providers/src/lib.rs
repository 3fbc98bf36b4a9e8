//! The table of built-in providers, in order of preference.
//!
//! A program needs no other dependency: [`selvedge`] is the library that the providers implement.
//!
//! `FI_HOOK` selects the hook layers around each provider.
//!
//! Each provider is a feature; `default` enables all of them. Discovery returns the lnx provider
//! only if the provider is requested by name, and the ofi provider only if a parameter names the
//! library to load. A registry also takes other providers:
//!
//! ```
//! use selvedge::{Hints, Provider, Registry};
//!
//! fn with_one_more(other: &'static dyn Provider) -> Registry {
//!     selvedge_providers::builtin().with(other)
//! }
//!
//! let infos = selvedge_providers::builtin().infos(&Hints::new())?;
//! println!("{} matching endpoint configurations", infos.len());
//! # Ok::<(), selvedge::Error>(())
//! ```

#![deny(missing_docs)]

pub use selvedge;

use selvedge::Registry;

/// Returns a registry of all built-in providers.
pub fn builtin() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "shm")]
    let registry = registry.with(const { &selvedge_hook::hooked(&selvedge_shm::PROVIDER) });
    #[cfg(feature = "tcp")]
    let registry = registry.with(const { &selvedge_hook::hooked(&selvedge_tcp::PROVIDER) });
    #[cfg(feature = "udp")]
    let registry = registry.with(const { &selvedge_hook::hooked(&selvedge_udp::PROVIDER) });
    #[cfg(feature = "ofi")]
    let registry = registry.with(const { &selvedge_hook::hooked(&selvedge_ofi::PROVIDER) });
    #[cfg(feature = "lnx")]
    let registry = registry.with(const { &selvedge_hook::hooked(&LNX) });
    registry
}

#[cfg(feature = "lnx")]
static LNX: selvedge_lnx::Lnx =
    selvedge_lnx::Lnx::new(&selvedge_shm::PROVIDER, &selvedge_tcp::PROVIDER)
        .with_unwatched(LNX_LIBRARY);

/// Providers whose link finds out by itself whether a peer has failed.
#[cfg(all(feature = "lnx", feature = "ofi"))]
static LNX_LIBRARY: &[&dyn selvedge::Provider] = &[&selvedge_ofi::PROVIDER];
#[cfg(all(feature = "lnx", not(feature = "ofi")))]
static LNX_LIBRARY: &[&dyn selvedge::Provider] = &[];
