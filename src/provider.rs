//! Providers: what discovery asks, and what opens fabrics.

use std::fmt;
use std::sync::Arc;

use crate::info::{Candidate, Version};
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
pub enum Alias {
    /// The same service, and the same protocol.
    SameProtocol(&'static str),
    /// The same service, over a protocol that peers of that name do not speak.
    OtherProtocol(&'static str),
    /// A service that the provider does not have; the text says so, and what to ask for.
    Unsupported(&'static str, &'static str),
}

impl Alias {
    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameProtocol(name) | Self::OtherProtocol(name) | Self::Unsupported(name, _) => {
                name
            }
        }
    }

    /// Whether the provider does what is asked for by this name.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::SameProtocol(_) | Self::OtherProtocol(_))
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
    fn aliases(&self) -> &'static [Alias] {
        &[]
    }

    /// The parameters it reads from the environment.
    fn params(&self) -> &'static [param::Spec] {
        &[]
    }

    /// Whether it takes part in discovery: a provider that is off unless it is asked for is not even
    /// listed.
    fn is_enabled(&self, params: &Params) -> bool {
        let _ = params;
        true
    }

    /// Holds every way to communicate that it has against the query, best first: each is fitted to
    /// the query, or refused by an attribute. `selvedge-kit` has the rules.
    ///
    /// # Errors
    /// Why it cannot answer: a resource that is missing, a parameter that cannot be read.
    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error>;

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

    fn aliases(&self) -> &'static [Alias] {
        (**self).aliases()
    }

    fn params(&self) -> &'static [param::Spec] {
        (**self).params()
    }

    fn is_enabled(&self, params: &Params) -> bool {
        (**self).is_enabled(params)
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        (**self).getinfo(query)
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        (**self).fabric(info)
    }
}
