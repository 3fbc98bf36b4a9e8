//! Providers, and the registry that asks them.

use std::fmt;
use std::sync::Arc;

use crate::info::Version;
use crate::param::{self, Params};
use crate::{Error, Fabric, Hints, Info, InfoFlags};

/// What one call of [`Registry::getinfo`] asks every provider.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Query<'a> {
    /// The API version that the application was written for.
    pub version: Version,
    /// A peer, or with [`InfoFlags::SOURCE`] the local end.
    pub node: Option<&'a str>,
    /// Its service.
    pub service: Option<&'a str>,
    /// How the arguments are read.
    pub flags: InfoFlags,
    /// What is asked for.
    pub hints: &'a Hints,
    /// The environment, with the parameters of every provider of the registry.
    pub params: &'a Params,
}

/// Something that fulfils the contract of this crate.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The name that `FI_PROVIDER` knows it by.
    fn name(&self) -> &'static str;

    /// Its version.
    fn version(&self) -> Version;

    /// The parameters it reads from the environment.
    fn params(&self) -> &'static [param::Spec] {
        &[]
    }

    /// The ways to communicate that satisfy the query, best first.
    ///
    /// # Errors
    /// Why there are none: the attribute that refused, with both values.
    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Info>, Error>;

    /// Opens the fabric of an [`Info`] of this provider (fi_fabric(3)).
    ///
    /// # Errors
    /// What of `info` does not fit.
    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error>;
}

/// The providers that discovery asks, in order of preference.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    providers: Vec<&'static dyn Provider>,
}

impl Registry {
    /// No providers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a provider behind those that are there.
    #[must_use]
    pub fn with(mut self, provider: &'static dyn Provider) -> Self {
        self.providers.push(provider);
        self
    }

    /// The providers in order.
    pub fn providers(&self) -> &[&'static dyn Provider] {
        &self.providers
    }
}
