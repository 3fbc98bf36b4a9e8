//! The one table of built-in providers, in order of preference. It holds no logic.
//!
//! Each has the layers around it that `FI_HOOK` asks for.
//!
//! Each provider is a feature of its own; `default` has all of them. The lnx provider serves those who
//! name it, and the ofi provider is off until a parameter names the library that it is to load. A
//! registry takes providers from elsewhere just as well:
//!
//! ```
//! use selvedge::{Hints, Provider, Registry};
//!
//! fn with_one_more(other: &'static dyn Provider) -> Registry {
//!     selvedge_providers::builtin().with(other)
//! }
//!
//! let infos = selvedge_providers::builtin().infos(&Hints::new())?;
//! println!("{} ways to communicate", infos.len());
//! # Ok::<(), selvedge::Error>(())
//! ```

#![deny(missing_docs)]

use selvedge::Registry;
use selvedge_hook::hooked;

/// A registry of every provider that was built in.
pub fn builtin() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "shm")]
    let registry = registry.with(const { &hooked(&selvedge_shm::PROVIDER) });
    #[cfg(feature = "tcp")]
    let registry = registry.with(const { &hooked(&selvedge_tcp::PROVIDER) });
    #[cfg(feature = "udp")]
    let registry = registry.with(const { &hooked(&selvedge_udp::PROVIDER) });
    #[cfg(feature = "ofi")]
    let registry = registry.with(const { &hooked(&selvedge_ofi::PROVIDER) });
    #[cfg(feature = "lnx")]
    let registry = registry.with(const { &hooked(&LNX) });
    registry
}

#[cfg(feature = "lnx")]
static LNX: selvedge_lnx::Lnx =
    selvedge_lnx::Lnx::new(&selvedge_shm::PROVIDER, &selvedge_tcp::PROVIDER);
