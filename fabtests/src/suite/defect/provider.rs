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

use super::endpoint::DefectiveEndpoint;
use super::hide_refusal::{OwnDomain, hide_refusal};
use super::kind::Defect;
use super::objects::DefectiveCounter;
use super::queue::DefectiveQueue;
use super::region::{DefectiveRegion, Regions};

/// A defect is the layer around objects that need no other state.
impl ObjectLayer for Defect {
    type Layers = Self;
}

impl Layers for Defect {
    type Cq = DefectiveQueue;
    type Cntr = DefectiveCounter;
    type Av = Self;
    type Eq = Self;
    type Srx = Self;
    type Endpoint = DefectiveEndpoint;
}

impl ProviderLayer for Defect {
    fn getinfo(&self, below: &dyn Provider, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        let no_hints = Hints::anything();
        let mut query = *query;
        if *self == Self::IgnoresHints {
            query.hints = &no_hints;
        }
        if *self == Self::IgnoresHosts {
            query.node = None;
        }
        let mut infos = below.getinfo(&query)?;
        if *self == Self::DropsCaps {
            for info in infos.iter_mut().flatten() {
                info.caps.remove(Caps::TAGGED | Caps::SOURCE);
            }
        }
        Ok(infos)
    }

    fn fabric(&self, below: &dyn Provider, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        let below = below.fabric(info)?;
        let layer = DefectiveFabric {
            defect: *self,
            below: Arc::clone(&below),
            has_domain: AtomicBool::new(false),
        };
        Ok(Layered::new(below, layer))
    }
}

struct DefectiveFabric {
    defect: Defect,
    below: Arc<dyn Fabric>,
    has_domain: AtomicBool,
}

impl ObjectLayer for DefectiveFabric {
    type Layers = Defect;
}

impl FabricLayer for DefectiveFabric {
    fn domain(&self, below: &dyn Fabric, info: &Info) -> Result<Arc<dyn Domain>, Error> {
        if self.has_domain.swap(true, Ordering::Relaxed) && self.defect == Defect::OneDomain {
            return Err(Error::new(Errno::Busy, "the fabric has a domain already"));
        }
        let domain = below.domain(info)?;
        let layer = DefectiveDomain {
            defect: self.defect,
            own_domain: OwnDomain {
                fabric: Arc::clone(&self.below),
                domain: Arc::clone(&domain),
            },
            regions: Arc::default(),
        };
        Ok(Layered::new(domain, layer))
    }

    fn eq(&self, below: &dyn Fabric, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(Layered::new(below.eq(attr)?, self.defect))
    }

    fn passive_endpoint(
        &self,
        below: &dyn Fabric,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        let opened = below.passive_endpoint(info, Defect::event_queue(&eq));
        let passive = hide_refusal(self.defect, opened, || {
            let eq = below.eq(&eq::Attr::default())?;
            below.passive_endpoint(info, eq)
        })?;
        let passive = Layered::new(passive, self.defect);
        passive.name_in_events();
        Ok(passive)
    }
}

struct DefectiveDomain {
    defect: Defect,
    regions: Arc<Regions>,
    own_domain: OwnDomain,
}

impl DefectiveDomain {
    /// Returns the access rights with which a region is registered.
    fn access(&self, access: MrAccess) -> MrAccess {
        match self.defect {
            Defect::GrantsAll => access | MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
            _ => access,
        }
    }

    /// Makes a region's layer, if peers may access the region.
    fn region(&self, region: &Arc<dyn MemoryRegion>, access: MrAccess) -> Option<DefectiveRegion> {
        if self.defect == Defect::KeepsRegions {
            std::mem::forget(Arc::clone(region));
        }
        let is_for_peers = access.intersects(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
        is_for_peers.then(|| DefectiveRegion::new(region, self.defect, &self.regions))
    }
}

impl ObjectLayer for DefectiveDomain {
    type Layers = Defect;
}

// SAFETY: the domain below keeps the promise. A planted defect changes reports about messages and
// their content; where it breaks the promise, it affects only a test's own canaries.
unsafe impl DomainLayer for DefectiveDomain {
    fn cq(&self, below: &dyn Domain, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        Ok(Layered::new(
            below.cq(attr)?,
            DefectiveQueue::new(self.defect),
        ))
    }

    fn cntr(&self, below: &dyn Domain, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        let mut attr = attr.clone();
        if self.defect == Defect::CountsNoBytes {
            attr.events = cntr::Events::Comp;
        }
        let counter = DefectiveCounter::new(self.defect);
        Ok(Layered::new(below.cntr(&attr)?, counter))
    }

    fn av(&self, below: &dyn Domain, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        let mut attr = attr.clone();
        attr.name = attr
            .name
            .filter(|_| self.defect != Defect::IgnoresVectorNames);
        Ok(Layered::new(below.av(&attr)?, self.defect))
    }

    fn endpoint(
        &self,
        below: &dyn Domain,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let queue = DefectiveQueue::state_of(&*bind.tx_cq);
        if self.defect == Defect::BlocksSignals {
            // If this fails, the defect has no effect, and the mutant's test reports that.
            let _ = SigSet::all().thread_block();
        }
        let bind = change_bindings(self.defect, bind);
        let srx = bind.srx.clone();
        let endpoint = match self.defect {
            Defect::DeliversEarly => {
                let mut info = info.clone();
                info.tx_attr.op_flags -= OpFlags::DELIVERY_COMPLETE;
                below.endpoint(&info, bind)?
            }
            _ => {
                let opened = below.endpoint(info, bind);
                let replacement = || below.endpoint(info, self.own_domain.bindings()?);
                hide_refusal(self.defect, opened, replacement)?
            }
        };
        let inject_size = info.tx_attr.inject_size;
        let endpoint = DefectiveEndpoint::wrap(endpoint, self.defect, queue, inject_size, srx);
        endpoint.name_in_events();
        Ok(endpoint)
    }

    fn scalable_endpoint(
        &self,
        below: &dyn Domain,
        info: &Info,
    ) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        let layer = DefectiveScalable {
            defect: self.defect,
            last_context: Mutex::default(),
            own_domain: self.own_domain.clone(),
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
        if self.defect == Defect::WidensRegions {
            region.iter_mut().for_each(|segment| segment.len += 8);
        }
        // SAFETY: the caller's promise; with `WidensRegions` for the canaries behind a test's
        // memory.
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
        if self.defect == Defect::WidensRegions {
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
        let queued = Defect::work(work, |work| {
            let mut work = *work;
            match self.defect {
                Defect::NeverStartsWork => work.threshold = u64::MAX,
                Defect::StartsWorkEarly => work.threshold = 0,
                _ => {}
            }
            if let Action::Post {
                op, flags, done, ..
            } = &mut work.action
            {
                match self.defect {
                    Defect::AcceptsAnyFlag => *flags -= OpFlags::INJECT | OpFlags::MULTI_RECV,
                    Defect::ReportsWorkToEndpoint => *done = CompletionTarget::Endpoint,
                    _ => {}
                }
                // SAFETY: passed on from the caller.
                *op = unsafe { self.defect.changed(*op) };
            }
            // SAFETY: as above.
            unsafe { below.queue_work(&work) }
        });
        hide_refusal(self.defect, queued, || Ok(WorkId(0)))
    }

    fn cancel_work(&self, below: &dyn Domain, id: WorkId) -> Result {
        match self.defect {
            Defect::CancelsNoWork => Ok(()),
            _ => below.cancel_work(id),
        }
    }

    fn flush_work(&self, below: &dyn Domain, cntr: Option<&Arc<dyn Counter>>) -> Result {
        match self.defect {
            Defect::CancelsNoWork | Defect::MixesDomains => Ok(()),
            _ => below.flush_work(cntr.map(Defect::counter).as_ref()),
        }
    }

    fn srx(&self, below: &dyn Domain, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        Ok(Layered::new(below.srx(attr)?, self.defect))
    }

    fn query_atomic(
        &self,
        below: &dyn Domain,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        match self.defect {
            Defect::DeniesAtomics => Err(Errno::OpNotSupp),
            _ => below.query_atomic(family, datatype, op),
        }
    }
}

struct DefectiveScalable {
    defect: Defect,
    /// The context that was opened last.
    last_context: Mutex<Option<Arc<dyn Endpoint>>>,
    own_domain: OwnDomain,
}

impl ObjectLayer for DefectiveScalable {
    type Layers = Defect;
}

impl ScalableLayer for DefectiveScalable {
    fn context(
        &self,
        below: &dyn ScalableEndpoint,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let queue = DefectiveQueue::state_of(&*bind.tx_cq);
        let opened = below.context(index, info, change_bindings(self.defect, bind));
        let opened = hide_refusal(self.defect, opened, || {
            below.context(index, info, self.own_domain.bindings()?)
        });
        if self.defect != Defect::OpensAnyContext {
            let inject_size = info.tx_attr.inject_size;
            let endpoint = opened?;
            return Ok(DefectiveEndpoint::wrap(
                endpoint,
                self.defect,
                queue,
                inject_size,
                None,
            ));
        }
        let mut last_context = self
            .last_context
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let endpoint = opened.or_else(|error| last_context.clone().ok_or(error))?;
        Ok(Arc::clone(last_context.insert(endpoint)))
    }
}

/// Returns the bindings of an endpoint below, with the defects of bindings.
fn change_bindings(defect: Defect, bind: Bindings) -> Bindings {
    let mut bind = Defect::bindings(bind);
    let cntrs = &mut bind.cntrs;
    if defect == Defect::WrongCounter {
        std::mem::swap(&mut cntrs.send, &mut cntrs.recv);
        std::mem::swap(&mut cntrs.read, &mut cntrs.write);
    }
    if defect == Defect::ReportsAll {
        (bind.tx_selective, bind.rx_selective) = (false, false);
    }
    if defect == Defect::InheritsDescriptors
        && let Ok(fd) = EventFd::from_value_and_flags(0, EfdFlags::empty())
    {
        std::mem::forget(fd);
    }
    bind
}
