//! Domains and the fabric: what endpoints, queues and address vectors are opened from.

use std::sync::Arc;

use selvedge::{
    AddressVector, Bindings, CompletionQueue, Counter, Endpoint, Error, EventQueue, Info, IovMut,
    MemoryRegion, MrMode, Result, av, cntr, cq, eq, mr,
};
use selvedge_kit::domain::Base;
use selvedge_kit::mr::Keys;

use crate::av::Av;
use crate::config::Config;
use crate::endpoint;

/// Both links, near and far.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    pub(crate) links: [Info; 2],
}

/// A domain of the lnx provider.
#[derive(Debug)]
pub(crate) struct Domain {
    base: Base,
    config: Config,
    links: [(Info, Arc<dyn selvedge::Domain>); 2],
    /// Registration is allowed, and nobody needs it.
    keys: Arc<Keys>,
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        let config = Config::read(info.params())?;
        let title = format!("lnx domain {}", info.domain_attr.name);
        let [near, far] = self.links.clone();
        let links = [(near.open()?, near), (far.open()?, far)];
        Ok(Arc::new(Domain {
            base: Base::open(info, title, config.spin_time)?,
            config,
            links: links.map(|(domain, info)| (info, domain)),
            keys: Arc::new(Keys::new(info.domain_attr.mr_mode)),
        }))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(selvedge_kit::eq::Queue::open(attr)?)
    }
}

#[expect(unsafe_code, reason = "the promise of the domain trait")]
// SAFETY: the queues are rings of the kit that only endpoints push to, whose promise is argued at
// their own `unsafe impl`. Every operation takes its bytes from the addresses that it names. Nobody
// reaches a region by its key.
unsafe impl selvedge::Domain for Domain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        self.base.cq(attr)
    }

    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        self.base.cntr(attr)
    }

    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        self.base.check_birth()?;
        Ok(Arc::new(Av::open(attr)))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        self.base.check_birth()?;
        Ok(endpoint::Endpoint::open(
            info,
            &bind,
            &self.config,
            &self.base,
            &self.links,
        )?)
    }

    fn mr_mode(&self) -> MrMode {
        self.keys.mode()
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        self.base.check_birth()?;
        self.keys.register(region, attr)
    }
}
