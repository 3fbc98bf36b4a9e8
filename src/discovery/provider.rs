//! `Provider`: an implementation of a transport. Discovery queries providers, and providers open
//! fabrics.

use std::fmt;
use std::sync::Arc;

use crate::info::{Candidate, Version};
use crate::param::{self, Params};
use crate::{Error, Fabric, Hints, Info, InfoFlags};

/// The query that [`crate::Registry::getinfo`] passes to every provider.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Query<'a> {
    /// The API version of the application.
    pub version: Version,
    /// The name of the peer, or with [`InfoFlags::SOURCE`] the local address.
    pub node: Option<&'a str>,
    /// The service at `node`.
    pub service: Option<&'a str>,
    /// Flags that change the meaning of the arguments.
    pub flags: InfoFlags,
    /// The requirements of the application.
    pub hints: &'a Hints,
    /// The environment, with the parameters of every provider of the registry.
    pub params: &'a Params,
}

impl<'a> Query<'a> {
    /// Creates a query for this library's version, without addresses and flags.
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

/// A name of a libfabric provider that maps to a provider with another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// The provider has the same service and the same protocol.
    SameProtocol(&'static str),
    /// The provider has the same service with another protocol, and cannot communicate with
    /// libfabric's provider of that name.
    OtherProtocol(&'static str),
    /// The provider does not have the service. The text has the reason and the remedy.
    Unsupported(&'static str, &'static str),
}

impl Alias {
    /// Returns the name of the libfabric provider.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SameProtocol(name) | Self::OtherProtocol(name) | Self::Unsupported(name, _) => {
                name
            }
        }
    }

    /// Returns whether the provider can be selected by this name.
    pub const fn is_served(self) -> bool {
        matches!(self, Self::SameProtocol(_) | Self::OtherProtocol(_))
    }
}

/// An implementation of a transport.
pub trait Provider: fmt::Debug + Send + Sync {
    /// Returns the name in `FI_PROVIDER`.
    fn name(&self) -> &'static str;

    /// Returns the version of the provider.
    fn version(&self) -> Version;

    /// Returns the names of libfabric providers, of one or several layers, that map to this
    /// provider.
    fn aliases(&self) -> &'static [Alias] {
        &[]
    }

    /// Returns the parameters that the provider reads from the environment.
    fn params(&self) -> &'static [param::Spec] {
        &[]
    }

    /// Returns whether discovery queries the provider. A disabled provider is not listed.
    fn is_enabled(&self, params: &Params) -> bool {
        let _ = params;
        true
    }

    /// Checks all descriptions of the provider against the query, best first. Each description is
    /// adjusted to the query, or rejected with the attribute that does not match. `selvedge-kit`
    /// implements the rules.
    ///
    /// # Errors
    /// An error that names the missing resource or the invalid parameter.
    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error>;

    /// Opens the fabric of an [`Info`] of this provider (fi_fabric(3)).
    ///
    /// # Errors
    /// An error that names the attribute of `info` that does not match.
    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error>;
}

/// A reference to a `static` provider is a provider.
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
