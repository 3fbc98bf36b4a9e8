//! The provider with hooks, its fabrics and its domains.

#![expect(unsafe_code, reason = "a domain around a domain")]

use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::trigger::{Work, WorkId};
use selvedge::{
    AddressVector, Allocation, Bindings, CompletionQueue, Counter, Domain, Endpoint, Error,
    EventQueue, Fabric, Info, IovMut, MemoryRegion, PassiveEndpoint, Provider, Result,
    ScalableEndpoint, SharedReceives, alloc, av, cntr, cq, eq, mr,
};
use selvedge_kit::layer::{
    DomainLayer, FabricLayer, Layered, LayeredProvider, Layers, ObjectLayer, ProviderLayer,
};

use super::endpoint::HookedEndpoint;
use super::point::{HookLayers, HookPoint};
use super::queue::HookedQueue;
use super::shared::HookedShared;
use crate::hooks::{Args, Hooks};

/// A provider whose objects have the hooks of `FI_HOOK` around them.
pub type Hooked = LayeredProvider<&'static dyn Provider, Hook>;

/// Puts hooks around a provider.
pub const fn hooked(provider: &'static dyn Provider) -> Hooked {
    Hooked::new(provider, Hook)
}

/// The layer around a provider.
#[derive(Debug)]
pub struct Hook;

impl ObjectLayer for Hook {
    // A provider has no bindings.
    type Layers = ();
}

impl Layers for HookLayers {
    type Cq = HookedQueue;
    type Cntr = HookPoint;
    type Av = HookPoint;
    type Eq = HookPoint;
    type Srx = HookedShared;
    type Endpoint = HookedEndpoint;
}

impl ProviderLayer for Hook {
    fn fabric(&self, below: &dyn Provider, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        let Some(hooks) = Hooks::from_params(info.params())? else {
            return below.fabric(info);
        };
        let point = hooks.new_point("fabric_close");
        let args = |args: &mut Args| {
            args.text("provider", &info.fabric_attr.prov_name)
                .text("name", &info.fabric_attr.name);
        };
        let fabric = point.open("fabric", &args, || below.fabric(info))?;
        Ok(Layered::new(fabric, point))
    }
}

impl FabricLayer for HookPoint {
    fn domain(&self, below: &dyn Fabric, info: &Info) -> Result<Arc<dyn Domain>, Error> {
        let point = self.new_object("domain_close");
        let args = |args: &mut Args| {
            args.text("name", &info.domain_attr.name);
        };
        let domain = point.open("domain", &args, || below.domain(info))?;
        let info = info.clone();
        Ok(Layered::new(domain, HookedDomain { point, info }))
    }

    fn eq(&self, below: &dyn Fabric, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        let args = |args: &mut Args| {
            args.num("size", attr.size as u64);
        };
        Ok(self.open_layered(("eq_open", "eq_close"), &args, || below.eq(attr))?)
    }

    fn passive_endpoint(
        &self,
        below: &dyn Fabric,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        let open = || below.passive_endpoint(info, HookLayers::event_queue(&eq));
        let passive = self.open_layered(("passive_ep", ""), &|_| {}, open)?;
        passive.name_in_events();
        Ok(passive)
    }
}

/// The layer around a domain.
struct HookedDomain {
    point: HookPoint,
    /// The info that opened the domain.
    info: Info,
}

impl ObjectLayer for HookedDomain {
    type Layers = HookLayers;

    fn close(&self) {
        self.point.close();
    }
}

// SAFETY: queues, endpoints and regions are those of the domain below. The layers around them drop
// entries if a fault rule says so, and add none.
unsafe impl DomainLayer for HookedDomain {
    fn cq(&self, below: &dyn Domain, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        let point = self.point.new_object("cq_close");
        let args = |args: &mut Args| {
            args.num("size", attr.size as u64);
        };
        let queue = point.open("cq_open", &args, || below.cq(attr))?;
        Ok(Layered::new(queue, HookedQueue::new(point)))
    }

    fn cntr(&self, below: &dyn Domain, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        let calls = ("cntr_open", "cntr_close");
        Ok(self
            .point
            .open_layered(calls, &|_| {}, || below.cntr(attr))?)
    }

    fn av(&self, below: &dyn Domain, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        let calls = ("av_open", "av_close");
        Ok(self.point.open_layered(calls, &|_| {}, || below.av(attr))?)
    }

    fn endpoint(
        &self,
        below: &dyn Domain,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let point = self.point.new_object("ep_close");
        let args = |args: &mut Args| {
            args.text("type", &info.ep_attr.ep_type);
        };
        let open = |bind| point.open("endpoint", &args, || below.endpoint(info, bind));
        Ok(HookedEndpoint::open(&point, info, bind, open)?)
    }

    fn scalable_endpoint(
        &self,
        below: &dyn Domain,
        info: &Info,
    ) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        let calls = ("scalable_ep", "scalable_ep_close");
        let open = || below.scalable_endpoint(info);
        Ok(self.point.open_layered(calls, &|_| {}, open)?)
    }

    unsafe fn reg(
        &self,
        below: &dyn Domain,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let args = |args: &mut Args| {
            let len: usize = region.iter().map(|segment| segment.len).sum();
            args.num("len", len as u64).num("key", attr.requested_key);
        };
        // SAFETY: passed on from the caller.
        let reg = || unsafe { below.reg(region, attr) };
        let region = self.point.open("mr_reg", &args, reg)?;
        Ok(Layered::new(region, self.point.new_object("mr_close")))
    }

    fn alloc(
        &self,
        below: &dyn Domain,
        len: usize,
        attr: &alloc::Attr,
    ) -> Result<Arc<dyn Allocation>, Error> {
        let args = |args: &mut Args| {
            args.num("len", len as u64);
        };
        let memory = self.point.open("alloc", &args, || below.alloc(len, attr))?;
        Ok(Layered::new(memory, self.point.new_object("mr_close")))
    }

    fn srx(&self, below: &dyn Domain, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        let point = self.point.new_object("srx_close");
        let receives = point.open("srx_context", &|_| {}, || below.srx(attr))?;
        let layer = HookedShared::open(point, &self.info, attr)?;
        Ok(Layered::new(receives, layer))
    }

    unsafe fn queue_work(&self, below: &dyn Domain, work: &Work<'_>) -> Result<WorkId, Error> {
        let args = |args: &mut Args| {
            args.num("threshold", work.threshold);
        };
        HookLayers::work(work, |work| {
            // SAFETY: passed on from the caller.
            let queue = || unsafe { below.queue_work(work) };
            self.point.open("queue_work", &args, queue)
        })
    }

    fn cancel_work(&self, below: &dyn Domain, ticket: WorkId) -> Result {
        let cancel = || below.cancel_work(ticket);
        self.point.call_unit("cancel_work", &|_| {}, cancel)
    }

    fn flush_work(&self, below: &dyn Domain, cntr: Option<&Arc<dyn Counter>>) -> Result {
        let flush = || below.flush_work(cntr.map(HookLayers::counter).as_ref());
        self.point.call_unit("flush_work", &|_| {}, flush)
    }
}
