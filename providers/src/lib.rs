//! The one table of built-in providers, in order of preference. It holds no logic.

use selvedge::Registry;

/// A registry of every provider that was built in.
pub fn builtin() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "shm")]
    let registry = registry.with(&selvedge_shm::PROVIDER);
    registry
}
