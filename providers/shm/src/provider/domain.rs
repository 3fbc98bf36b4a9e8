//! `Fabric` and `Domain`: the objects from which endpoints, queues and address vectors are opened.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use selvedge::atomic::{Attr, Datatype, Family, Op};
use selvedge::info::RxAttr;
use selvedge::trigger::{Work, WorkId};
use selvedge::{
    AddressVector, Allocation, Bindings, Caps, CompletionQueue, Counter, Endpoint, EpOption,
    EpOptionName, Errno, Error, EventQueue, Info, IovMut, Limits, MemoryRegion, MrMode, Result,
    ScalableEndpoint, SharedReceives, alloc, av, cntr, collective, cq, eq,
};
use selvedge_kit::domain::Base;
use selvedge_kit::sep::{self, ContextSlot, Scalable};
use selvedge_kit::{FabricId, atomic, bound_av, coll};

use crate::endpoint::{self, Parent};
use crate::memory::alloc::AnnouncedBlock;
use crate::peers::name::{Name, is_wildcard};
use crate::provider::av::Av;
use crate::provider::config::Config;
use crate::provider::shared::Shared;

/// The fabric of the shm provider: the memory of this machine.
pub(crate) struct Fabric(FabricId);

/// A domain of the shm provider.
pub(crate) struct Domain(Arc<DomainState>);

/// The parts of a domain, shared with the objects that open its endpoints.
struct DomainState {
    base: Base,
    config: Config,
    /// The number of the domain in this process: the second part of default endpoint names.
    index: u32,
    /// The number of the next endpoint: the third part of its default name.
    next_endpoint: AtomicU32,
    shared: Arc<Shared>,
}

/// The number of the next domain of this process.
static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(0);

impl Fabric {
    pub(crate) fn open(info: &Info) -> Self {
        Self(FabricId::of(info))
    }
}

impl DomainState {
    /// Returns the name of a new endpoint.
    fn endpoint_name(&self, info: &Info) -> Result<Name, Error> {
        let default = || {
            let endpoint = self.next_endpoint.fetch_add(1, Ordering::Relaxed);
            Name::of_endpoint(self.index, endpoint)
        };
        match &info.src_addr {
            Some(address) => Name::of_source(address, default),
            None => Ok(default()),
        }
    }

    /// Calls `open` with the endpoint's name. Another user may have guessed and bound a generated
    /// name: then calls `open` again with a name that has a random suffix.
    fn open_named<T>(
        &self,
        info: &Info,
        open: impl Fn(Name) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let name = self.endpoint_name(info)?;
        let is_chosen = info.src_addr.as_ref().is_some_and(|a| !is_wildcard(a));
        match open(name.clone()) {
            Err(error) if error.errno() == Errno::AddrInUse && !is_chosen => {
                open(name.with_random_suffix()?)
            }
            result => result,
        }
    }

    /// Opens an endpoint without collectives.
    fn open(
        &self,
        name: Name,
        info: &Info,
        bind: &Bindings,
        parent: Parent,
    ) -> Result<endpoint::Endpoint, Error> {
        self.base.check_process()?;
        let (config, shared) = (self.config.clone(), Arc::clone(&self.shared));
        endpoint::Endpoint::open(info, bind, name, config, &self.base, shared, parent)
    }

    /// Opens an endpoint or a context, with collectives if `info` requests them.
    fn endpoint(
        &self,
        name: Name,
        info: &Info,
        bind: &Bindings,
        context_slot: Option<ContextSlot>,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        if info.caps.contains(Caps::COLLECTIVE) {
            return coll::open(info, bind, &self.base, |info, bind, completions| {
                let av = bound_av(bind, self.base.id(), "an endpoint with FI_COLLECTIVE")?;
                let layer = Some(completions);
                let endpoint = self.open(
                    name,
                    info,
                    bind,
                    Parent {
                        layer,
                        context_slot,
                    },
                )?;
                Ok(endpoint.into_inner(av))
            });
        }
        let layer = None;
        Ok(Arc::new(self.open(
            name,
            info,
            bind,
            Parent {
                layer,
                context_slot,
            },
        )?))
    }
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        let config = Config::read(info.params())?;
        let index = NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed);
        let base = Base::open(
            info,
            &self.0,
            format!("shm domain {index}"),
            config.poll_policy,
        )?;
        let shared = Shared::new(info.domain_attr.mr_mode, base.region_counters());
        Ok(Arc::new(Domain(Arc::new(DomainState {
            base,
            config,
            index,
            next_endpoint: AtomicU32::new(0),
            shared: Arc::new(shared),
        }))))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(selvedge_kit::eq::Queue::open(attr, &self.0)?)
    }
}

#[expect(unsafe_code, reason = "the promise of the domain trait")]
// SAFETY: the queues are rings of the kit. Only endpoints push to them, and the endpoints' promise
// is argued at their own `unsafe impl`. Every operation takes its bytes from the addresses that it
// names. This process accesses a region's memory under the lock of `Keys`. Peers access it and
// check afterwards whether its key entry is still published. Dropping the region's handle withdraws
// the entry under that lock.
unsafe impl selvedge::Domain for Domain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        self.0.base.cq(attr)
    }

    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        self.0.base.cntr(attr)
    }

    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        self.0.base.check_process()?;
        Ok(Arc::new(Av::open(attr, self.0.base.id())?))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        self.0
            .open_named(info, |name| self.0.endpoint(name, info, &bind, None))
    }

    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        match name {
            EpOptionName::MinMultiRecv => Ok(EpOption::MinMultiRecv(self.0.config.inject_size)),
            _ => Limits::of(info).option(name),
        }
    }

    fn scalable_endpoint(&self, info: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        self.0.base.check_process()?;
        let name = self.0.endpoint_name(info)?;
        // Checks the longest name before any context is opened.
        name.of_context(sep::contexts(&info.ep_attr)? - 1)?;
        let (domain_state, address) = (Arc::clone(&self.0), name.to_address());
        let sep = Scalable::open(info, address, move |context, info, bind, context_slot| {
            let name = name.of_context(context)?;
            domain_state.endpoint(name, info, &bind, Some(context_slot))
        })?;
        Ok(sep)
    }

    fn alloc(&self, len: usize, attr: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error> {
        self.0.base.check_process()?;
        AnnouncedBlock::create(&self.0.shared, len, attr)
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
        self.0.base.srx(attr, crate::transfers::cmd::IOV_LIMIT)
    }

    fn query_collective(&self, query: &collective::Query) -> Result<collective::Attr> {
        coll::query(query)
    }

    fn mr_mode(&self) -> MrMode {
        self.0.shared.keys.mode()
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &selvedge::mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        self.0.base.check_process()?;
        self.0.shared.register(region, attr)
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.base.fmt(f)
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
