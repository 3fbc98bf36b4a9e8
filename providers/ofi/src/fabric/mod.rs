//! `Fabric`: it opens domains, event queues and passive endpoints.

mod eq;
mod pep;
mod state;

pub(crate) use eq::bound_eq;
pub(crate) use state::FabricState;

use std::fmt;
use std::sync::Arc;

use selvedge::{Error, EventQueue, Info, PassiveEndpoint, Result};

use self::eq::Eq;
use self::pep::Pep;
use crate::domain::Domain;
use crate::library::Library;

/// A fabric of the library.
pub(crate) struct Fabric {
    inner: Arc<FabricState>,
}

impl Fabric {
    pub(crate) fn open(library: &'static Library, info: &Info) -> Result<Self, Error> {
        let inner = FabricState::open(library, info)?;
        Ok(Self { inner })
    }
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        Ok(Arc::new(Domain::open(&self.inner, info)?))
    }

    fn eq(&self, attr: &selvedge::eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(Arc::new(Eq::open(&self.inner, attr)?))
    }

    fn passive_endpoint(
        &self,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        Ok(Pep::open(&self.inner, info, eq)?)
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.id.fmt(f)
    }
}
