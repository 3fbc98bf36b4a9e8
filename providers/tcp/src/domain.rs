//! `Fabric` and `Domain`: they open endpoints, queues and address vectors.

use std::fmt;
use std::sync::Arc;

use selvedge::atomic::{Attr, Datatype, Family, Op};
use selvedge::info::{EpType, RxAttr};
use selvedge::trigger::{Work, WorkId};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Counter, Endpoint, EpOption,
    EpOptionName, Errno, Error, EventQueue, Info, IovMut, Limits, MemoryRegion, MrMode,
    PassiveEndpoint, Result, ScalableEndpoint, SharedReceives, av, cntr, collective, cq, eq,
};
use selvedge_kit::domain::Base;
use selvedge_kit::ip::{Av, requested_address};
use selvedge_kit::mr::Keys;
use selvedge_kit::sep::{self, Scalable};
use selvedge_kit::{FabricId, atomic, bound_av, bound_eq, coll};

use crate::accept::contexts::ContextListeners;
use crate::accept::listen::ANYWHERE;
use crate::config::Config;
use crate::endpoint::msg::IOV_LIMIT;
use crate::endpoint::passive::Passive;
use crate::endpoint::{self, MIN_MULTI_RECV, OpenOptions};
use crate::wire::hello::DATA_MAX;

/// The networks of this host.
pub(crate) struct Fabric {
    pub(crate) id: FabricId,
    pub(crate) config: Config,
}

/// A domain of the tcp provider.
pub(crate) struct Domain(Arc<SharedDomain>);

/// The state that a domain shares with its scalable endpoints, which open contexts later.
struct SharedDomain {
    base: Base,
    /// Provider and interface name. Address vectors with the same family share addresses.
    family: String,
    config: Config,
    /// The registered memory. Its locks do not depend on the domain's threading promise.
    keys: Arc<Keys>,
}

impl SharedDomain {
    /// Opens an endpoint without collectives.
    fn open(
        &self,
        info: &Info,
        bind: &Bindings,
        options: OpenOptions,
    ) -> Result<Arc<endpoint::Endpoint>, Error> {
        self.base.check_process()?;
        let (config, keys) = (self.config.clone(), Arc::clone(&self.keys));
        endpoint::Endpoint::open(info, bind, config, &self.base, keys, options)
    }

    /// Opens an endpoint or a context, with the collective layer if `info` requests it.
    fn endpoint(
        &self,
        info: &Info,
        bind: &Bindings,
        mut options: OpenOptions,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        if info.caps.contains(Caps::COLLECTIVE) {
            return coll::open(info, bind, &self.base, |info, bind, completions| {
                let av = bound_av(bind, self.base.id(), "an endpoint with FI_COLLECTIVE")?;
                options.layer = Some(completions);
                let endpoint = self.open(info, bind, options)?;
                Ok(endpoint.into_inner(av))
            });
        }
        Ok(self.open(info, bind, options)?)
    }

    fn scalable(self: &Arc<Self>, info: &Info) -> Result<Arc<Scalable>, Error> {
        if info.ep_attr.ep_type != EpType::Rdm {
            let ep_type = info.ep_attr.ep_type;
            let text = format!("the tcp provider has no scalable endpoints of type {ep_type}");
            return Err(Error::new(Errno::Inval, text));
        }
        let first = requested_address(info)?.unwrap_or(ANYWHERE);
        let listeners = ContextListeners::open(first, sep::contexts(&info.ep_attr)?, &self.config)?;
        let (domain, address) = (Arc::clone(self), Address::Ip(listeners.first_addr()));
        Scalable::open(info, address, move |number, info, bind, slot| {
            let context = number as u16;
            let options = OpenOptions {
                listener: Some(listeners.listener(context)?),
                context,
                slot: Some(slot),
                ..OpenOptions::default()
            };
            domain.endpoint(info, &bind, options)
        })
    }
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        let config = Config::read(info.params())?;
        let title = format!("tcp domain {}", info.domain_attr.name);
        let base = Base::open(info, &self.id, title, config.poll_policy)?;
        let keys = Keys::new(info.domain_attr.mr_mode).with_counters(base.region_counters());
        Ok(Arc::new(Domain(Arc::new(SharedDomain {
            base,
            family: format!("tcp/{}", info.domain_attr.name),
            config,
            keys: Arc::new(keys),
        }))))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(selvedge_kit::eq::Queue::open(attr, &self.id)?)
    }

    fn passive_endpoint(
        &self,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        let eq = bound_eq(&eq, &self.id, &"a passive endpoint")?;
        Ok(Passive::open(info, self.config.clone(), &eq)?)
    }
}

#[expect(unsafe_code, reason = "the promise of the domain trait")]
// SAFETY: the queues are rings of the kit. Only endpoints push to them, and the `unsafe impl` of
// the endpoint trait argues the endpoints' promise. Every operation reads and writes only the
// addresses that it names. A region's memory is used under the lock of `Keys`, and dropping the
// region's handle withdraws the memory under that lock.
unsafe impl selvedge::Domain for Domain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        self.0.base.cq(attr)
    }

    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        self.0.base.cntr(attr)
    }

    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        self.0.base.check_process()?;
        Ok(Arc::new(Av::open(
            attr,
            self.0.base.id(),
            &self.0.family,
            "selvedge::tcp::av",
        )?))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        self.0.endpoint(info, &bind, OpenOptions::default())
    }

    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        Ok(match name {
            EpOptionName::MinMultiRecv => EpOption::MinMultiRecv(MIN_MULTI_RECV),
            EpOptionName::EagerSize => EpOption::EagerSize(self.0.config.eager_size),
            EpOptionName::CmDataSize if info.ep_attr.ep_type == EpType::Msg => {
                EpOption::CmDataSize(DATA_MAX)
            }
            _ => return Limits::of(info).option(name),
        })
    }

    fn scalable_endpoint(&self, info: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        self.0.base.check_process()?;
        Ok(self.0.scalable(info)?)
    }

    fn query_collective(&self, query: &collective::Query) -> Result<collective::Attr> {
        coll::query(query)
    }

    fn query_atomic(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        atomic::attr(self.0.config.inject_size, family, datatype, op)
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn queue_work(&self, work: &Work<'_>) -> Result<WorkId, Error> {
        // SAFETY: passed on from the caller.
        unsafe { self.0.base.queue_work::<endpoint::Endpoint>(work) }
    }

    fn cancel_work(&self, ticket: WorkId) -> Result {
        self.0.base.cancel_work(ticket)
    }

    fn flush_work(&self, cntr: Option<&Arc<dyn Counter>>) -> Result {
        self.0.base.flush_work(cntr)
    }

    fn srx(&self, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        self.0.base.srx(attr, IOV_LIMIT)
    }

    fn mr_mode(&self) -> MrMode {
        self.0.keys.mode()
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &selvedge::mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        self.0.base.check_process()?;
        self.0.keys.register(region, attr)
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.base.fmt(f)
    }
}
