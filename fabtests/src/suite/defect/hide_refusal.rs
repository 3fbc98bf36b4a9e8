//! The defect [`Defect::MixesDomains`]: a refused binding of an object of another domain is
//! reported as successful.

use std::sync::Arc;

use selvedge::{Bindings, Domain, Errno, Error, Fabric, av, cq, eq};

use super::kind::Defect;

/// The domain and fabric that an endpoint is opened from.
#[derive(Clone, Debug)]
pub(super) struct OwnDomain {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) domain: Arc<dyn Domain>,
}

impl OwnDomain {
    /// Opens new objects of the domain, and of the fabric if the fabric has them.
    pub(super) fn bindings(&self) -> Result<Bindings, Error> {
        let cq = self.domain.cq(&cq::Attr::default())?;
        let av = self.domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(cq, av);
        bind.eq = self.fabric.eq(&eq::Attr::default()).ok();
        Ok(bind)
    }
}

/// Returns the result of a call, or `replacement` if the call refused an object and the defect
/// hides the refusal.
pub(super) fn hide_refusal<T>(
    defect: Defect,
    result: Result<T, Error>,
    replacement: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    match result {
        Err(error) if defect == Defect::MixesDomains && error.errno() == Errno::Inval => {
            replacement()
        }
        result => result,
    }
}
