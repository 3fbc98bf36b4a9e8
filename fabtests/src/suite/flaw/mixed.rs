//! Objects of other domains that are said to be bound, and are not.

use std::sync::Arc;

use selvedge::{Bindings, Domain, Errno, Error, Fabric, av, cq, eq};

use super::Flaw;

/// What an endpoint is opened from.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) domain: Arc<dyn Domain>,
}

impl Own {
    /// New objects of the domain, and of the fabric if that has them.
    pub(super) fn bindings(&self) -> Result<Bindings, Error> {
        let cq = self.domain.cq(&cq::Attr::default())?;
        let av = self.domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(cq, av);
        bind.eq = self.fabric.eq(&eq::Attr::default()).ok();
        Ok(bind)
    }
}

/// What a call has answered, or `instead` where it has refused an object and the defect says that it
/// does not.
pub(super) fn mixed<T>(
    flaw: Flaw,
    answer: Result<T, Error>,
    instead: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    match answer {
        Err(error) if flaw == Flaw::MixesDomains && error.errno() == Errno::Inval => instead(),
        answer => answer,
    }
}
