//! The provider with hooks, its fabrics and its domains.

#![expect(unsafe_code, reason = "a domain around a domain")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use selvedge::info::{Offer, RxAttr, Version};
use selvedge::trigger::{Action, Done, Ticket, Work};
use selvedge::{
    AddressVector, Allocation, Bindings, CompletionQueue, Counter, Counters, Domain, Endpoint,
    EpOption, EpOptionName, Error, EventQueue, Fabric, Info, IovMut, LateBindings, MemoryRegion,
    MrMode, OtherName, PassiveEndpoint, Provider, Query, Result, ScalableEndpoint, SharedReceives,
    alloc, atomic, av, cntr, collective, cq, eq, mr, param,
};

use crate::call::{Args, Failure, Hooks};
use crate::endpoint::HookedEndpoint;
use crate::events::{HookedEq, HookedPassive, KNOWN};
use crate::objects::{HookedAv, HookedCounter};
use crate::queues::HookedQueue;
use crate::regions::HookedRegion;
use crate::scalable::HookedScalable;
use crate::shared::HookedShared;
use crate::watch::Wanted;

/// A provider whose objects have what `FI_HOOK` asks for around them.
#[derive(Debug)]
pub struct Hooked {
    inner: &'static dyn Provider,
}

impl Hooked {
    /// Puts hooks around a provider.
    pub const fn new(inner: &'static dyn Provider) -> Self {
        Self { inner }
    }
}

impl Provider for Hooked {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn version(&self) -> Version {
        self.inner.version()
    }

    fn other_names(&self) -> &'static [OtherName] {
        self.inner.other_names()
    }

    fn params(&self) -> &'static [param::Spec] {
        self.inner.params()
    }

    fn is_on(&self, params: &param::Params) -> bool {
        self.inner.is_on(params)
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Offer>, Error> {
        self.inner.getinfo(query)
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        let Some(hooks) = Hooks::of(info.params())? else {
            return self.inner.fabric(info);
        };
        let at = hooks.at();
        let what = |args: &mut Args| {
            args.text("provider", &info.fabric_attr.prov_name)
                .text("name", &info.fabric_attr.name);
        };
        let inner = at.open("fabric", &what, || self.inner.fabric(info))?;
        Ok(Arc::new(HookedFabric { inner, at }))
    }
}

struct HookedFabric {
    inner: Arc<dyn Fabric>,
    at: At,
}

impl Fabric for HookedFabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn Domain>, Error> {
        let at = self.at.another();
        let what = |args: &mut Args| {
            args.text("name", &info.domain_attr.name);
        };
        let inner = at.open("domain", &what, || self.inner.domain(info))?;
        let info = info.clone();
        Ok(Arc::new(HookedDomain { inner, at, info }))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        let at = self.at.another();
        let what = |args: &mut Args| {
            args.num("size", attr.size as u64);
        };
        let inner = at.open("eq_open", &what, || self.inner.eq(attr))?;
        Ok(Arc::new(HookedEq::new(inner, at)))
    }

    fn passive_endpoint(
        &self,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        let at = self.at.another();
        let eq = HookedEq::inner(eq);
        let open = || self.inner.passive_endpoint(info, eq);
        let inner = at.open("passive_ep", &|_| {}, open)?;
        let passive = Arc::new(HookedPassive::new(inner, at));
        KNOWN.add_passive(&passive);
        Ok(passive)
    }
}

impl Drop for HookedFabric {
    fn drop(&mut self) {
        self.at.close("fabric_close");
    }
}

impl fmt::Debug for HookedFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

struct HookedDomain {
    inner: Arc<dyn Domain>,
    at: At,
    /// What it was opened with.
    info: Info,
}

// SAFETY: queues, endpoints and regions are the inner domain's; what is around them leaves out
// entries, if a fault says so, and adds none.
unsafe impl Domain for HookedDomain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        let at = self.at.another();
        let what = |args: &mut Args| {
            args.num("size", attr.size as u64);
        };
        let inner = at.open("cq_open", &what, || self.inner.cq(attr))?;
        Ok(Arc::new(HookedQueue::new(inner, at)))
    }

    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        let at = self.at.another();
        let inner = at.open("cntr_open", &|_| {}, || self.inner.cntr(attr))?;
        Ok(Arc::new(HookedCounter::new(inner, at)))
    }

    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        let at = self.at.another();
        let inner = at.open("av_open", &|_| {}, || self.inner.av(attr))?;
        Ok(Arc::new(HookedAv::new(inner, at)))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        let at = self.at.another();
        let what = |args: &mut Args| {
            args.text("type", &info.ep_attr.ep_type);
        };
        let open = |bind| at.open("endpoint", &what, || self.inner.endpoint(info, bind));
        Ok(HookedEndpoint::open(&at, info, bind, open)?)
    }

    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        self.inner.option(info, name)
    }

    fn scalable_endpoint(&self, info: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        let at = self.at.another();
        let open = || self.inner.scalable_endpoint(info);
        let inner = at.open("scalable_ep", &|_| {}, open)?;
        Ok(Arc::new(HookedScalable::new(inner, at)))
    }

    fn mr_mode(&self) -> MrMode {
        self.inner.mr_mode()
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let what = |args: &mut Args| {
            let len: usize = region.iter().map(|piece| piece.len).sum();
            args.num("len", len as u64).num("key", attr.requested_key);
        };
        // SAFETY: passed on from the caller.
        let reg = || unsafe { self.inner.reg(region, attr) };
        let inner = self.at.open("mr_reg", &what, reg)?;
        Ok(Arc::new(HookedRegion::new(inner, self.at.another())))
    }

    fn alloc(&self, len: usize, attr: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error> {
        let what = |args: &mut Args| {
            args.num("len", len as u64);
        };
        let alloc = || self.inner.alloc(len, attr);
        let inner = self.at.open("alloc", &what, alloc)?;
        Ok(Arc::new(HookedRegion::new(inner, self.at.another())))
    }

    fn srx(&self, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        let at = self.at.another();
        let inner = at.open("srx_context", &|_| {}, || self.inner.srx(attr))?;
        Ok(Arc::new(HookedShared::open(inner, at, &self.info, attr)?))
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn queue_work(&self, work: &Work<'_>) -> Result<Ticket, Error> {
        let own = |cntr: &Arc<dyn Counter>| HookedCounter::inner(Arc::clone(cntr));
        let cntr = own(work.cntr);
        let queue = |action| {
            let work = Work {
                cntr: &cntr,
                threshold: work.threshold,
                action,
            };
            let what = |args: &mut Args| {
                args.num("threshold", work.threshold);
            };
            // SAFETY: passed on from the caller.
            let run = || unsafe { self.inner.queue_work(&work) };
            self.at.open("queue_work", &what, run)
        };
        match work.action {
            Action::Set(at, value) => queue(Action::Set(&own(at), value)),
            Action::Add(at, value) => queue(Action::Add(&own(at), value)),
            Action::Post {
                ep,
                op,
                flags,
                done,
            } => {
                let told = match done {
                    Done::Counter(Some(cntr)) => Some(own(cntr)),
                    _ => None,
                };
                queue(Action::Post {
                    ep: &HookedEndpoint::inner(ep),
                    op,
                    flags,
                    done: match done {
                        Done::Counter(_) => Done::Counter(told.as_ref()),
                        Done::Endpoint => Done::Endpoint,
                    },
                })
            }
        }
    }

    fn cancel_work(&self, ticket: Ticket) -> Result {
        self.at
            .done("cancel_work", &|_| {}, || self.inner.cancel_work(ticket))
    }

    fn flush_work(&self, cntr: Option<&Arc<dyn Counter>>) -> Result {
        let cntr = cntr.map(|cntr| HookedCounter::inner(Arc::clone(cntr)));
        let run = || self.inner.flush_work(cntr.as_ref());
        self.at.done("flush_work", &|_| {}, run)
    }

    fn query_atomic(
        &self,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        self.inner.query_atomic(family, datatype, op)
    }

    fn query_collective(&self, query: &collective::Query) -> Result<collective::Attr> {
        self.inner.query_collective(query)
    }
}

impl Drop for HookedDomain {
    fn drop(&mut self) {
        self.at.close("domain_close");
    }
}

impl fmt::Debug for HookedDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// An object's place: its hooks, and its number.
#[derive(Clone, Debug)]
pub(crate) struct At {
    hooks: Arc<Hooks>,
    number: u64,
}

impl Hooks {
    /// The place of a new object.
    pub(crate) fn at(self: &Arc<Self>) -> At {
        At {
            hooks: Arc::clone(self),
            number: self.number(),
        }
    }
}

impl At {
    pub(crate) fn another(&self) -> Self {
        self.hooks.at()
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// What the hooks keep of endpoints.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.hooks.wanted
    }

    /// An opening call. One that is dropped fails: there is no object to give.
    pub(crate) fn open<T>(
        &self,
        name: &'static str,
        args: &dyn Fn(&mut Args),
        run: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let dropped = || {
            let what = format!("{name} is dropped by a hook");
            Err(Error::new(selvedge::Errno::Io, what))
        };
        self.hooks
            .call((name, self.number), args, |_| None, dropped, run)
    }

    /// A call that answers with nothing.
    pub(crate) fn done(
        &self,
        name: &'static str,
        args: &dyn Fn(&mut Args),
        run: impl FnOnce() -> Result,
    ) -> Result {
        self.hooks
            .call((name, self.number), args, |()| None, || Ok(()), run)
    }

    /// A call that answers with something, and with `dropped` if it is dropped.
    pub(crate) fn gives<R, E: Failure>(
        &self,
        name: &'static str,
        args: &dyn Fn(&mut Args),
        gave: impl Fn(&R) -> Option<String>,
        dropped: Result<R, E>,
        run: impl FnOnce() -> Result<R, E>,
    ) -> Result<R, E> {
        self.hooks
            .call((name, self.number), args, gave, || dropped, run)
    }

    pub(crate) fn close(&self, name: &'static str) {
        self.hooks.close(name, self.number);
    }
}

/// What an endpoint is bound to, without hooks.
pub(crate) fn unhooked(mut bind: Bindings) -> Bindings {
    bind.tx_cq = HookedQueue::inner(bind.tx_cq);
    bind.rx_cq = HookedQueue::inner(bind.rx_cq);
    bind.av = bind.av.map(HookedAv::inner);
    bind.eq = bind.eq.map(HookedEq::inner);
    bind.srx = bind.srx.map(HookedShared::inner);
    bind.cntrs = unhooked_cntrs(bind.cntrs);
    bind
}

/// As [`unhooked`], for what an open endpoint is bound to.
pub(crate) fn unhooked_late(late: LateBindings) -> LateBindings {
    let queue = |(cq, is_selective)| (HookedQueue::inner(cq), is_selective);
    LateBindings {
        tx_cq: late.tx_cq.map(queue),
        rx_cq: late.rx_cq.map(queue),
        cntrs: unhooked_cntrs(late.cntrs),
    }
}

fn unhooked_cntrs(mut cntrs: Counters) -> Counters {
    for cntr in [
        &mut cntrs.send,
        &mut cntrs.recv,
        &mut cntrs.read,
        &mut cntrs.write,
        &mut cntrs.remote_read,
        &mut cntrs.remote_write,
    ] {
        *cntr = cntr.take().map(HookedCounter::inner);
    }
    cntrs
}

/// The object inside of one with hooks; itself if it has none.
pub(crate) fn unwrapped<T: ?Sized, F: Any>(
    object: Arc<T>,
    as_any: impl Fn(&T) -> &dyn Any,
    inner: impl Fn(&F) -> Arc<T>,
) -> Arc<T> {
    match as_any(&object).downcast_ref::<F>() {
        Some(hooked) => inner(hooked),
        None => object,
    }
}
