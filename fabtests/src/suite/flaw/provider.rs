//! The provider with a defect, its fabrics and its domains.

#![expect(unsafe_code, reason = "a domain around a domain")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;
use selvedge::info::{Candidate, RxAttr};
use selvedge::trigger::{Action, CompletionTarget, Work, WorkId};
use selvedge::{
    AddressVector, Allocation, Bindings, Caps, CompletionQueue, Counter, Domain, Endpoint, Errno,
    Error, EventQueue, Fabric, Hints, Info, IovMut, MemoryRegion, MrAccess, OpFlags,
    PassiveEndpoint, Provider, Query, Result, ScalableEndpoint, SharedReceives, alloc, atomic, av,
    cntr, cq, eq, mr,
};
use selvedge_kit::layer::{
    DomainLayer, FabricLayer, Layered, Layers, ObjectLayer, ProviderLayer, ScalableLayer,
};

use super::Flaw;
use super::endpoint::FlawedEndpoint;
use super::mixed::{Own, mixed};
use super::objects::FlawedCounter;
use super::queue::FlawedQueue;
use super::region::{FlawedRegion, Regions};

/// A defect is the layer around objects of which nothing else is kept.
impl ObjectLayer for Flaw {
    type Layers = Self;
}

impl Layers for Flaw {
    type Cq = FlawedQueue;
    type Cntr = FlawedCounter;
    type Av = Self;
    type Eq = Self;
    type Srx = Self;
    type Endpoint = FlawedEndpoint;
}

impl ProviderLayer for Flaw {
    fn getinfo(&self, below: &dyn Provider, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        let anything = Hints::anything();
        let mut query = *query;
        if *self == Self::IgnoresHints {
            query.hints = &anything;
        }
        if *self == Self::IgnoresHosts {
            query.node = None;
        }
        let mut offers = below.getinfo(&query)?;
        if *self == Self::DropsCaps {
            for info in offers.iter_mut().flatten() {
                info.caps.remove(Caps::TAGGED | Caps::SOURCE);
            }
        }
        Ok(offers)
    }

    fn fabric(&self, below: &dyn Provider, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        let below = below.fabric(info)?;
        let layer = FlawedFabric {
            flaw: *self,
            below: Arc::clone(&below),
            has_domain: AtomicBool::new(false),
        };
        Ok(Layered::new(below, layer))
    }
}

struct FlawedFabric {
    flaw: Flaw,
    below: Arc<dyn Fabric>,
    has_domain: AtomicBool,
}

impl ObjectLayer for FlawedFabric {
    type Layers = Flaw;
}

impl FabricLayer for FlawedFabric {
    fn domain(&self, below: &dyn Fabric, info: &Info) -> Result<Arc<dyn Domain>, Error> {
        if self.has_domain.swap(true, Ordering::Relaxed) && self.flaw == Flaw::OneDomain {
            return Err(Error::new(Errno::Busy, "there is a domain already"));
        }
        let domain = below.domain(info)?;
        let layer = FlawedDomain {
            flaw: self.flaw,
            own: Own {
                fabric: Arc::clone(&self.below),
                domain: Arc::clone(&domain),
            },
            regions: Arc::default(),
        };
        Ok(Layered::new(domain, layer))
    }

    fn eq(&self, below: &dyn Fabric, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(Layered::new(below.eq(attr)?, self.flaw))
    }

    fn passive_endpoint(
        &self,
        below: &dyn Fabric,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        let opened = below.passive_endpoint(info, Flaw::event_queue(&eq));
        let passive = mixed(self.flaw, opened, || {
            let own = below.eq(&eq::Attr::default())?;
            below.passive_endpoint(info, own)
        })?;
        let passive = Layered::new(passive, self.flaw);
        passive.name_in_events();
        Ok(passive)
    }
}

struct FlawedDomain {
    flaw: Flaw,
    regions: Arc<Regions>,
    own: Own,
}

impl FlawedDomain {
    /// What a region is registered with, which peers may use.
    fn access(&self, access: MrAccess) -> MrAccess {
        match self.flaw {
            Flaw::GrantsAll => access | MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
            _ => access,
        }
    }

    /// A region's layer, if peers may use the region.
    fn region(&self, region: &Arc<dyn MemoryRegion>, access: MrAccess) -> Option<FlawedRegion> {
        if self.flaw == Flaw::KeepsRegions {
            std::mem::forget(Arc::clone(region));
        }
        let is_for_peers = access.intersects(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
        is_for_peers.then(|| FlawedRegion::new(region, self.flaw, &self.regions))
    }
}

impl ObjectLayer for FlawedDomain {
    type Layers = Flaw;
}

// SAFETY: the domain below keeps the promise; what is planted here changes what is said of messages
// and what they hold, and where it breaks the promise, only a test's own canaries are met.
unsafe impl DomainLayer for FlawedDomain {
    fn cq(&self, below: &dyn Domain, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        Ok(Layered::new(below.cq(attr)?, FlawedQueue::new(self.flaw)))
    }

    fn cntr(&self, below: &dyn Domain, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        let mut attr = attr.clone();
        if self.flaw == Flaw::CountsNoBytes {
            attr.events = cntr::Events::Comp;
        }
        let counter = FlawedCounter::new(self.flaw);
        Ok(Layered::new(below.cntr(&attr)?, counter))
    }

    fn av(&self, below: &dyn Domain, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        let mut attr = attr.clone();
        attr.name = attr.name.filter(|_| self.flaw != Flaw::ForgetsNames);
        Ok(Layered::new(below.av(&attr)?, self.flaw))
    }

    fn endpoint(
        &self,
        below: &dyn Domain,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let queue = FlawedQueue::of(&*bind.tx_cq);
        if self.flaw == Flaw::BlocksSignals {
            // Where that fails the defect is not there, and its mutant says so.
            let _ = SigSet::all().thread_block();
        }
        let bind = bindings(self.flaw, bind);
        let srx = bind.srx.clone();
        let endpoint = match self.flaw {
            Flaw::DeliversEarly => {
                let mut info = info.clone();
                info.tx_attr.op_flags -= OpFlags::DELIVERY_COMPLETE;
                below.endpoint(&info, bind)?
            }
            _ => {
                let opened = below.endpoint(info, bind);
                let own = || below.endpoint(info, self.own.bindings()?);
                mixed(self.flaw, opened, own)?
            }
        };
        let inject_size = info.tx_attr.inject_size;
        let endpoint = FlawedEndpoint::around(endpoint, self.flaw, queue, inject_size, srx);
        endpoint.name_in_events();
        Ok(endpoint)
    }

    fn scalable_endpoint(
        &self,
        below: &dyn Domain,
        info: &Info,
    ) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        let layer = FlawedScalable {
            flaw: self.flaw,
            last: Mutex::default(),
            own: self.own.clone(),
        };
        Ok(Layered::new(below.scalable_endpoint(info)?, layer))
    }

    unsafe fn reg(
        &self,
        below: &dyn Domain,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let (mut region, mut attr) = (region.to_vec(), attr.clone());
        attr.access = self.access(attr.access);
        if self.flaw == Flaw::WidensRegions {
            region.iter_mut().for_each(|piece| piece.len += 8);
        }
        // SAFETY: the caller's promise; with `WidensRegions` for the canaries behind a test's memory.
        let region = unsafe { below.reg(&region, &attr) }?;
        Ok(match self.region(&region, attr.access) {
            Some(layer) => Layered::new(region, layer),
            None => region,
        })
    }

    fn alloc(
        &self,
        below: &dyn Domain,
        mut len: usize,
        attr: &alloc::Attr,
    ) -> Result<Arc<dyn Allocation>, Error> {
        let mut attr = attr.clone();
        attr.access = self.access(attr.access);
        if self.flaw == Flaw::WidensRegions {
            len += 8;
        }
        let memory = below.alloc(len, &attr)?;
        let region: Arc<dyn MemoryRegion> = Arc::clone(&memory) as _;
        Ok(match self.region(&region, attr.access) {
            Some(layer) => Layered::new(memory, layer),
            None => memory,
        })
    }

    unsafe fn queue_work(&self, below: &dyn Domain, work: &Work<'_>) -> Result<WorkId, Error> {
        let queued = Flaw::work(work, |work| {
            let mut work = *work;
            match self.flaw {
                Flaw::ForgetsWork => work.threshold = u64::MAX,
                Flaw::HurriesWork => work.threshold = 0,
                _ => {}
            }
            if let Action::Post {
                op, flags, done, ..
            } = &mut work.action
            {
                match self.flaw {
                    Flaw::TakesAnyFlag => *flags -= OpFlags::INJECT | OpFlags::MULTI_RECV,
                    Flaw::TellsAll => *done = CompletionTarget::Endpoint,
                    _ => {}
                }
                // SAFETY: passed on from the caller.
                *op = unsafe { self.flaw.changed(*op) };
            }
            // SAFETY: as above.
            unsafe { below.queue_work(&work) }
        });
        mixed(self.flaw, queued, || Ok(WorkId(0)))
    }

    fn cancel_work(&self, below: &dyn Domain, ticket: WorkId) -> Result {
        match self.flaw {
            Flaw::KeepsWork => Ok(()),
            _ => below.cancel_work(ticket),
        }
    }

    fn flush_work(&self, below: &dyn Domain, cntr: Option<&Arc<dyn Counter>>) -> Result {
        match self.flaw {
            Flaw::KeepsWork | Flaw::MixesDomains => Ok(()),
            _ => below.flush_work(cntr.map(Flaw::counter).as_ref()),
        }
    }

    fn srx(&self, below: &dyn Domain, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        Ok(Layered::new(below.srx(attr)?, self.flaw))
    }

    fn query_atomic(
        &self,
        below: &dyn Domain,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        match self.flaw {
            Flaw::DeniesAtomics => Err(Errno::OpNotSupp),
            _ => below.query_atomic(family, datatype, op),
        }
    }
}

struct FlawedScalable {
    flaw: Flaw,
    /// The context that was opened last.
    last: Mutex<Option<Arc<dyn Endpoint>>>,
    own: Own,
}

impl ObjectLayer for FlawedScalable {
    type Layers = Flaw;
}

impl ScalableLayer for FlawedScalable {
    fn context(
        &self,
        below: &dyn ScalableEndpoint,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let queue = FlawedQueue::of(&*bind.tx_cq);
        let opened = below.context(index, info, bindings(self.flaw, bind));
        let opened = mixed(self.flaw, opened, || {
            below.context(index, info, self.own.bindings()?)
        });
        if self.flaw != Flaw::OpensAnyContext {
            let inject_size = info.tx_attr.inject_size;
            let endpoint = opened?;
            return Ok(FlawedEndpoint::around(
                endpoint,
                self.flaw,
                queue,
                inject_size,
                None,
            ));
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let any = opened.or_else(|error| last.clone().ok_or(error))?;
        Ok(Arc::clone(last.insert(any)))
    }
}

/// What an endpoint is bound to below, without defects but one of bindings.
fn bindings(flaw: Flaw, bind: Bindings) -> Bindings {
    let mut bind = Flaw::bindings(bind);
    let cntrs = &mut bind.cntrs;
    if flaw == Flaw::WrongCounter {
        std::mem::swap(&mut cntrs.send, &mut cntrs.recv);
        std::mem::swap(&mut cntrs.read, &mut cntrs.write);
    }
    if flaw == Flaw::ReportsAll {
        (bind.tx_selective, bind.rx_selective) = (false, false);
    }
    if flaw == Flaw::Inherits
        && let Ok(fd) = EventFd::from_value_and_flags(0, EfdFlags::empty())
    {
        std::mem::forget(fd);
    }
    bind
}
