//! Planted defects: a layer around a provider, with one fault.
//!
//! A test that was never seen to fail is not counted. Every test names the kinds of defects that it
//! detects, and `fabtests run --mutants` runs it over the provider with each of them. A test that
//! passes with such a defect does not detect it. The defects are planted between the application
//! and the provider, so the same defects serve for every provider.

mod endpoint;
mod hide_refusal;
mod kind;
mod objects;
mod op;
mod provider;
mod queue;
mod region;

pub(crate) use kind::Defect;

use std::sync::Arc;

use clap::ValueEnum;
use selvedge::{Errno, Error, Provider, Registry};
use selvedge_kit::layer::LayeredProvider;

/// The environment variable that names the planted defect.
pub(crate) const VARIABLE: &str = "FABTESTS_DEFECT";

/// The former name of [`VARIABLE`], which is also accepted.
const FORMER_VARIABLE: &str = "FABTESTS_FLAW";

/// Returns the built-in providers, with the defect that the environment names, if any.
///
/// # Errors
/// The environment names an unknown defect.
pub(crate) fn registry() -> Result<Registry, Error> {
    let mut registry = Registry::new();
    for provider in selvedge_providers::builtin().providers() {
        let planted = plant_defect(Arc::clone(provider));
        let planted = planted.map_err(|error| Error::new(Errno::Inval, error.to_string()))?;
        registry = registry.with_shared(planted);
    }
    Ok(registry)
}

/// Plants the defect that the environment names, if any, in a provider.
///
/// # Errors
/// The environment names an unknown defect.
pub(crate) fn plant_defect(provider: Arc<dyn Provider>) -> anyhow::Result<Arc<dyn Provider>> {
    let Ok(name) = std::env::var(VARIABLE).or_else(|_| std::env::var(FORMER_VARIABLE)) else {
        return Ok(provider);
    };
    let defect = Defect::from_str(&name, false);
    let defect = defect.map_err(|_| anyhow::anyhow!("{VARIABLE}={name:?} names no defect"))?;
    Ok(Arc::new(LayeredProvider::new(provider, defect)))
}
