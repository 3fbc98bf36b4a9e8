//! Providers: what discovery asks, and what opens fabrics.

use std::fmt;
use std::sync::Arc;

use crate::info::{Offer, Version};
use crate::param::{self, Params};
use crate::{Error, Fabric, Hints, Info, InfoFlags};

/// What one call of [`crate::Registry::getinfo`] asks every provider.
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

impl<'a> Query<'a> {
    /// A query for this library's version, without addresses and flags.
    pub fn new(hints: &'a Hints, params: &'a Params) -> Self {
        Self {
            version: Version::API,
            node: None,
            service: None,
            flags: InfoFlags::empty(),
            hints,
            params,
        }
    }
}

/// A name of libfabric's that stands for a provider with another name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherName {
    /// The same service, and the same protocol.
    Same(&'static str),
    /// The same service, over a protocol that peers of that name do not speak.
    Instead(&'static str),
    /// A service that the provider does not have; the text says so, and what to ask for.
    Missing(&'static str, &'static str),
}

impl OtherName {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same(name) | Self::Instead(name) | Self::Missing(name, _) => name,
        }
    }

    /// Whether the provider does what is asked for by this name.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::Same(_) | Self::Instead(_))
    }
}

/// Something that fulfils the contract of this crate.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The name that `FI_PROVIDER` knows it by.
    fn name(&self) -> &'static str;

    /// Its version.
    fn version(&self) -> Version;

    /// Names of libfabric's providers, alone or in layers, under which programs ask for what this one
    /// does.
    fn other_names(&self) -> &'static [OtherName] {
        &[]
    }

    /// The parameters it reads from the environment.
    fn params(&self) -> &'static [param::Spec] {
        &[]
    }

    /// Whether it takes part in discovery: a provider that is off unless it is asked for is not even
    /// listed.
    fn is_on(&self, params: &Params) -> bool {
        let _ = params;
        true
    }

    /// Holds every way to communicate that it has against the query, best first: each is fitted to
    /// the query, or refused by an attribute. `selvedge-kit` has the rules.
    ///
    /// # Errors
    /// Why it cannot answer: a resource that is missing, a parameter that cannot be read.
    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Offer>, Error>;

    /// Opens the fabric of an [`Info`] of this provider (fi_fabric(3)).
    ///
    /// # Errors
    /// What of `info` does not fit.
    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error>;
}

/// A provider that is a constant of the program is a provider of a [`crate::Registry`] as it is.
impl<P: Provider + ?Sized> Provider for &'static P {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn version(&self) -> Version {
        (**self).version()
    }

    fn other_names(&self) -> &'static [OtherName] {
        (**self).other_names()
    }

    fn params(&self) -> &'static [param::Spec] {
        (**self).params()
    }

    fn is_on(&self, params: &Params) -> bool {
        (**self).is_on(params)
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Offer>, Error> {
        (**self).getinfo(query)
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        (**self).fabric(info)
    }
}
