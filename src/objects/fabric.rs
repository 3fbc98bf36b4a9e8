//! Fabrics: fi_fabric(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Domain, Errno, Error, EventQueue, Info, PassiveEndpoint, Result, eq};

/// A network or the memory of one machine, which opens domains, event queues and passive endpoints.
/// Error texts name a fabric by its `Debug` text, which is a few words.
pub trait Fabric: Any + fmt::Debug + Send + Sync {
    /// Opens a domain (fi_domain(3)).
    ///
    /// # Errors
    /// An error that names the attribute of `info` that does not match.
    fn domain(&self, info: &Info) -> Result<Arc<dyn Domain>, Error>;

    /// Opens an event queue (fi_eq_open(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no event queues.
    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        let _ = attr;
        Err(Error::new(
            Errno::NoSys,
            format!("{self:?} has no event queues"),
        ))
    }

    /// Opens a passive endpoint (fi_passive_ep(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no connected endpoints.
    fn passive_endpoint(
        &self,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        let _ = (info, eq);
        Err(Error::new(
            Errno::NoSys,
            format!("{self:?} has no passive endpoints"),
        ))
    }
}
