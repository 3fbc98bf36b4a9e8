//! `Fabric` and `Domain`: they open endpoints, queues and address vectors.

use std::fmt;
use std::sync::Arc;

use selvedge::{
    AddressVector, Bindings, CompletionQueue, Counter, Endpoint, Error, EventQueue, Info, IovMut,
    MemoryRegion, MrMode, Result, av, cntr, cq, eq, mr,
};
use selvedge_kit::FabricId;
use selvedge_kit::av::check_plain;
use selvedge_kit::domain::Base;
use selvedge_kit::ip::Av;
use selvedge_kit::mr::Keys;

use crate::config::Config;
use crate::endpoint;

/// The fabric of the udp provider: the networks of this host.
pub(crate) struct Fabric(pub(crate) FabricId);

/// A domain of the udp provider.
pub(crate) struct Domain {
    base: Base,
    config: Config,
    /// Registration is allowed but not needed.
    keys: Arc<Keys>,
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        let config = Config::read(info.params())?;
        let title = format!("udp domain {}", info.domain_attr.name);
        Ok(Arc::new(Domain {
            base: Base::open(info, &self.0, title, config.poll_policy)?,
            config,
            keys: Arc::new(Keys::new(info.domain_attr.mr_mode)),
        }))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(selvedge_kit::eq::Queue::open(attr, &self.0)?)
    }
}

#[expect(unsafe_code, reason = "the promise of the domain trait")]
// SAFETY: the queues are rings of the kit that only endpoints push to, whose promise is argued at
// their own `unsafe impl`. Every operation reads and writes only the addresses that it names. No
// operation accesses a region by its key.
unsafe impl selvedge::Domain for Domain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        self.base.cq(attr)
    }

    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        self.base.cntr(attr)
    }

    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        self.base.check_process()?;
        check_plain(attr, &self.base)?;
        Ok(Arc::new(Av::open(
            attr,
            self.base.id(),
            "udp",
            "selvedge::udp::av",
        )?))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        self.base.check_process()?;
        Ok(endpoint::Endpoint::open(
            info,
            &bind,
            &self.config,
            &self.base,
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
        self.base.check_process()?;
        self.keys.register(region, attr)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base.fmt(f)
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
