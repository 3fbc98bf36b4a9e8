//! The fabric and its domains, from which endpoints, queues and address vectors are opened.

use std::fmt;
use std::sync::Arc;

use selvedge::atomic::{Attr, Datatype, Family, Op};
use selvedge::{
    AddressVector, Bindings, CompletionQueue, Counter, Endpoint, EpOption, EpOptionName, Errno,
    Error, EventQueue, Info, IovMut, Limits, MemoryRegion, MrMode, Result, av, cntr, cq, eq, mr,
};
use selvedge_kit::FabricId;
use selvedge_kit::av::check_plain;
use selvedge_kit::domain::Base;

use crate::av::Av;
use crate::config::Config;
use crate::endpoint;
use crate::endpoint::common_attr;
use crate::link::selection::{self, LinkDomain, Needs, Providers};
use crate::mr::{link_modes, register};
use crate::name::{self, Name, OTHER_HOST};
use crate::wire::EAGER;

/// The fabric: the providers of the links, near and far.
#[derive(Clone)]
pub(crate) struct Fabric {
    pub(crate) id: FabricId,
    pub(crate) providers: Providers,
}

/// A domain of the lnx provider.
pub(crate) struct Domain {
    base: Base,
    config: Config,
    links: [LinkDomain; 2],
    /// The number of this host.
    host: u64,
}

impl Domain {
    fn links(&self) -> [&dyn selvedge::Domain; 2] {
        self.links.each_ref().map(|link| &*link.domain)
    }
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        let config = Config::read(info.params())?;
        let title = format!("lnx domain {}", info.domain_attr.name);
        let links = self.open_links(&config, info)?;
        Ok(Arc::new(Domain {
            base: Base::open(info, &self.id, title, config.poll_policy)?,
            host: name::host(&config.host),
            config,
            links,
        }))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(selvedge_kit::eq::Queue::open(attr, &self.id)?)
    }
}

impl Fabric {
    /// Opens a domain of each link for an lnx domain with this info.
    fn open_links(&self, config: &Config, info: &Info) -> Result<[LinkDomain; 2], Error> {
        let selected = self.providers.select(&config.prov_links)?;
        let dest = info.dest_addr.as_ref().and_then(Name::from_address);
        // The address of a peer on another host determines the interface that the far link uses.
        let dest = dest.filter(|name| name.host == OTHER_HOST);
        let (needs, dest) = (Needs::of(info), dest.map(|name| name.far));
        let found = selection::discover(&selected, needs, info.params(), dest.as_ref())?;
        let [near, far] = found.map_err(|mismatch| {
            let message = format!("cannot open lnx: {mismatch}");
            Error::new(Errno::NoDev, message)
        })?;
        let [near_mode, far_mode] = link_modes(info.domain_attr.mr_mode);
        Ok([
            near.open(info.params(), near_mode)?,
            far.open(info.params(), far_mode)?,
        ])
    }
}

#[expect(unsafe_code, reason = "the promise of the domain trait")]
// SAFETY: the queues are rings of the kit. Only endpoints push to them; the `unsafe impl` of the
// endpoint argues its promise. Every operation takes its bytes from the addresses that it names. A
// region consists of one region of each link. The links keep the promise for their regions, which
// are dropped with the region.
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
        let links = self.links.each_ref().map(|link| Arc::clone(&link.domain));
        Ok(Arc::new(Av::open(attr, self.base.id(), links, self.host)))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        self.base.check_process()?;
        Ok(endpoint::Endpoint::open(
            info,
            &bind,
            &self.config,
            &self.base,
            &self.links,
            self.host,
        )?)
    }

    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        match name {
            EpOptionName::MinMultiRecv => Ok(EpOption::MinMultiRecv(EAGER)),
            _ => Limits::of(info).option(name),
        }
    }

    fn query_atomic(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        let query = |link: &dyn selvedge::Domain| link.query_atomic(family, datatype, op);
        let [near, far] = self.links().map(query);
        Ok(common_attr(near?, far?))
    }

    fn mr_mode(&self) -> MrMode {
        let [near, _] = self.links();
        near.mr_mode()
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        self.base.check_process()?;
        let links = self.links.each_ref().map(|link| Arc::clone(&link.domain));
        // SAFETY: passed on from the caller.
        unsafe { register(links, self.base.region_counters(), region, attr) }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.base.fmt(f)
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}
