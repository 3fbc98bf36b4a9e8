//! Opens what an [`Info`] describes, through the provider that has returned it.

use std::sync::Arc;

use super::provider::{Provider, Query};
use crate::{Domain, Errno, Error, Fabric, Info};

/// The provider in the origin of an [`Info`].
struct Opener(Arc<dyn Provider>);

/// Binds a description to its provider, and to the parameters and the threading promise of a query.
pub(super) fn set_provider(info: &mut Info, provider: &Arc<dyn Provider>, query: &Query<'_>) {
    let opener = Arc::new(Opener(Arc::clone(provider)));
    info.set_origin(opener, query.params, query.hints.info());
}

impl Info {
    /// Opens the domain and its fabric (fi_fabric(3), fi_domain(3)).
    ///
    /// # Errors
    /// [`Errno::NoDev`] for an `Info` that discovery has not returned; the errors of the provider.
    pub fn open(&self) -> Result<Arc<dyn Domain>, Error> {
        self.fabric()?.domain(self)
    }

    /// Opens the fabric alone (fi_fabric(3)), for event queues, and for several domains of one
    /// fabric.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn fabric(&self) -> Result<Arc<dyn Fabric>, Error> {
        let opener = self.provider().and_then(|opener| opener.downcast_ref());
        let Opener(provider) = opener.ok_or_else(|| {
            let text = "cannot open an Info that no registry has returned: use Registry::getinfo or \
                        Registry::adopt";
            Error::new(Errno::NoDev, text)
        })?;
        provider.fabric(self)
    }
}
