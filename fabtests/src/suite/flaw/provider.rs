//! The provider with a defect, its fabrics and its domains.

#![expect(unsafe_code, reason = "a domain around a domain")]

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::SigSet;
use selvedge::atomic::AtomicMsg;
use selvedge::info::Offer;
use selvedge::info::{RxAttr, Version};
use selvedge::rma::WriteMsg;
use selvedge::trigger::{Action, Done, Ticket, Work};
use selvedge::{
    Address, AddressVector, Allocation, Bindings, Caps, CompletionQueue, Counter, Counters, Domain,
    Endpoint, EpOption, EpOptionName, Errno, Error, EventQueue, Fabric, Hints, Info, Iov, IovMut,
    LateBindings, MemoryRegion, MrAccess, MrMode, Op, OpFlags, PassiveEndpoint, Provider, Query,
    Result, ScalableEndpoint, SharedReceives, alloc, atomic, av, cntr, collective, cq, eq, mr, msg,
    param, tagged,
};

use super::Flaw;
use super::endpoint::{FlawedEndpoint, copied, flipped, similar};
use super::known::KNOWN;
use super::mixed::{Own, mixed};
use super::objects::{FlawedAv, FlawedCounter, FlawedEq, FlawedPassive};
use super::queue::FlawedQueue;
use super::region::{FlawedRegion, Regions};
use super::shared::FlawedShared;

/// The provider with a defect.
#[derive(Debug)]
pub(super) struct Planted {
    inner: Arc<dyn Provider>,
    flaw: Flaw,
}

impl Planted {
    pub(super) fn new(inner: Arc<dyn Provider>, flaw: Flaw) -> Self {
        Self { inner, flaw }
    }
}

impl Provider for Planted {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn version(&self) -> Version {
        self.inner.version()
    }

    fn params(&self) -> &'static [param::Spec] {
        self.inner.params()
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Offer>, Error> {
        let anything = Hints::anything();
        let mut query = *query;
        if self.flaw == Flaw::IgnoresHints {
            query.hints = &anything;
        }
        if self.flaw == Flaw::IgnoresHosts {
            query.node = None;
        }
        let mut offers = self.inner.getinfo(&query)?;
        if self.flaw == Flaw::DropsCaps {
            for info in offers.iter_mut().flatten() {
                info.caps.remove(Caps::TAGGED | Caps::SOURCE);
            }
        }
        Ok(offers)
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        Ok(Arc::new(FlawedFabric {
            inner: self.inner.fabric(info)?,
            flaw: self.flaw,
            has_domain: AtomicBool::new(false),
        }))
    }
}

#[derive(Debug)]
struct FlawedFabric {
    inner: Arc<dyn Fabric>,
    flaw: Flaw,
    has_domain: AtomicBool,
}

impl Fabric for FlawedFabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn Domain>, Error> {
        if self.has_domain.swap(true, Ordering::Relaxed) && self.flaw == Flaw::OneDomain {
            return Err(Error::new(Errno::Busy, "there is a domain already"));
        }
        let inner = self.inner.domain(info)?;
        Ok(Arc::new(FlawedDomain {
            own: Own {
                fabric: Arc::clone(&self.inner),
                domain: Arc::clone(&inner),
            },
            inner,
            flaw: self.flaw,
            regions: Arc::default(),
        }))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        let inner = self.inner.eq(attr)?;
        Ok(Arc::new(FlawedEq::new(inner, self.flaw)))
    }

    fn passive_endpoint(
        &self,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        let opened = self.inner.passive_endpoint(info, FlawedEq::inner(eq));
        let inner = mixed(self.flaw, opened, || {
            let own = self.inner.eq(&eq::Attr::default())?;
            self.inner.passive_endpoint(info, own)
        })?;
        Ok(Arc::new(FlawedPassive::new(inner, self.flaw)))
    }
}

#[derive(Debug)]
struct FlawedDomain {
    inner: Arc<dyn Domain>,
    flaw: Flaw,
    regions: Arc<Regions>,
    own: Own,
}

// SAFETY: the inner domain keeps the promise; what is planted here changes what is said of messages
// and what they hold, and where it breaks the promise, only a test's own canaries are met.
unsafe impl Domain for FlawedDomain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        Ok(Arc::new(FlawedQueue::new(self.inner.cq(attr)?, self.flaw)))
    }

    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        let mut attr = attr.clone();
        if self.flaw == Flaw::CountsNoBytes {
            attr.events = cntr::Events::Comp;
        }
        let inner = self.inner.cntr(&attr)?;
        Ok(Arc::new(FlawedCounter::new(inner, self.flaw)))
    }

    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        let mut attr = attr.clone();
        attr.name = attr.name.filter(|_| self.flaw != Flaw::ForgetsNames);
        Ok(Arc::new(FlawedAv::new(self.inner.av(&attr)?, self.flaw)))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        let queue = FlawedQueue::of(&bind.tx_cq);
        if self.flaw == Flaw::BlocksSignals {
            // Where that fails the defect is not there, and its mutant says so.
            let _ = SigSet::all().thread_block();
        }
        let bind = unwrapped_bindings(self.flaw, bind);
        let srx = bind.srx.clone();
        let inner = match self.flaw {
            Flaw::DeliversEarly => {
                let mut info = info.clone();
                info.tx_attr.op_flags -= OpFlags::DELIVERY_COMPLETE;
                self.inner.endpoint(&info, bind)?
            }
            _ => {
                let opened = self.inner.endpoint(info, bind);
                let own = || self.inner.endpoint(info, self.own.bindings()?);
                mixed(self.flaw, opened, own)?
            }
        };
        let inject_size = info.tx_attr.inject_size;
        let own = FlawedEndpoint::new(inner, self.flaw, queue, inject_size);
        let own = Arc::new(own.sharing(srx));
        KNOWN.add(&own);
        Ok(own)
    }

    fn option(&self, info: &Info, name: EpOptionName) -> Result<EpOption> {
        self.inner.option(info, name)
    }

    fn scalable_endpoint(&self, info: &Info) -> Result<Arc<dyn ScalableEndpoint>, Error> {
        Ok(Arc::new(FlawedScalable {
            inner: self.inner.scalable_endpoint(info)?,
            flaw: self.flaw,
            last: Mutex::default(),
            own: self.own.clone(),
        }))
    }

    fn mr_mode(&self) -> MrMode {
        self.inner.mr_mode()
    }

    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let (mut region, mut attr) = (region.to_vec(), attr.clone());
        match self.flaw {
            Flaw::GrantsAll => attr.access |= MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
            Flaw::WidensRegions => region.iter_mut().for_each(|piece| piece.len += 8),
            _ => {}
        }
        // SAFETY: the caller's promise; with `WidensRegions` for the canaries behind a test's memory.
        let inner = unsafe { self.inner.reg(&region, &attr) }?;
        if self.flaw == Flaw::KeepsRegions {
            std::mem::forget(Arc::clone(&inner));
        }
        if !is_for_peers(attr.access) {
            return Ok(inner);
        }
        let own = Arc::clone(&inner);
        let flawed = FlawedRegion::new(inner, &own, self.flaw, &self.regions);
        Ok(Arc::new(flawed))
    }

    fn alloc(&self, len: usize, attr: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error> {
        let (mut len, mut attr) = (len, attr.clone());
        match self.flaw {
            Flaw::GrantsAll => attr.access |= MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
            Flaw::WidensRegions => len += 8,
            _ => {}
        }
        let inner = self.inner.alloc(len, &attr)?;
        if self.flaw == Flaw::KeepsRegions {
            std::mem::forget(Arc::clone(&inner));
        }
        if !is_for_peers(attr.access) {
            return Ok(inner);
        }
        let own: Arc<dyn MemoryRegion> = Arc::clone(&inner) as _;
        let flawed = FlawedRegion::new(inner, &own, self.flaw, &self.regions);
        Ok(Arc::new(flawed))
    }

    unsafe fn queue_work(&self, work: &Work<'_>) -> Result<Ticket, Error> {
        let cntr = FlawedCounter::inner(Arc::clone(work.cntr));
        let threshold = match self.flaw {
            Flaw::ForgetsWork => u64::MAX,
            Flaw::HurriesWork => 0,
            _ => work.threshold,
        };
        let queue = |action| {
            let cntr = &cntr;
            let work = Work {
                cntr,
                threshold,
                action,
            };
            // SAFETY: the caller's promise.
            let queued = unsafe { self.inner.queue_work(&work) };
            mixed(self.flaw, queued, || Ok(Ticket(0)))
        };
        match work.action {
            Action::Set(at, value) => {
                queue(Action::Set(&FlawedCounter::inner(Arc::clone(at)), value))
            }
            Action::Add(at, value) => {
                queue(Action::Add(&FlawedCounter::inner(Arc::clone(at)), value))
            }
            Action::Post {
                ep,
                op,
                flags,
                done,
            } => {
                let told = match done {
                    Done::Counter(Some(cntr)) => Some(FlawedCounter::inner(Arc::clone(cntr))),
                    _ => None,
                };
                let unfit = match self.flaw {
                    Flaw::TakesAnyFlag => OpFlags::INJECT | OpFlags::MULTI_RECV,
                    _ => OpFlags::empty(),
                };
                queue(Action::Post {
                    ep: &FlawedEndpoint::inner(ep),
                    // SAFETY: the caller's promise.
                    op: unsafe { self.spoiled(op) },
                    flags: flags - unfit,
                    done: match done {
                        Done::Counter(_) if self.flaw != Flaw::TellsAll => {
                            Done::Counter(told.as_ref())
                        }
                        _ => Done::Endpoint,
                    },
                })
            }
        }
    }

    fn cancel_work(&self, ticket: Ticket) -> Result {
        match self.flaw {
            Flaw::KeepsWork => Ok(()),
            _ => self.inner.cancel_work(ticket),
        }
    }

    fn flush_work(&self, cntr: Option<&Arc<dyn Counter>>) -> Result {
        let cntr = cntr.map(|cntr| FlawedCounter::inner(Arc::clone(cntr)));
        match self.flaw {
            Flaw::KeepsWork | Flaw::MixesDomains => Ok(()),
            _ => self.inner.flush_work(cntr.as_ref()),
        }
    }

    fn srx(&self, attr: &RxAttr) -> Result<Arc<dyn SharedReceives>, Error> {
        Ok(Arc::new(FlawedShared::new(
            self.inner.srx(attr)?,
            self.flaw,
        )))
    }

    fn query_atomic(
        &self,
        family: atomic::Family,
        datatype: atomic::Datatype,
        op: atomic::Op,
    ) -> Result<atomic::Attr> {
        match self.flaw {
            Flaw::DeniesAtomics => Err(Errno::OpNotSupp),
            _ => self.inner.query_atomic(family, datatype, op),
        }
    }

    fn query_collective(&self, query: &collective::Query) -> Result<collective::Attr> {
        self.inner.query_collective(query)
    }
}

#[derive(Debug)]
struct FlawedScalable {
    inner: Arc<dyn ScalableEndpoint>,
    flaw: Flaw,
    /// The context that was opened last.
    last: Mutex<Option<Arc<dyn Endpoint>>>,
    own: Own,
}

impl ScalableEndpoint for FlawedScalable {
    fn address(&self) -> Result<Address> {
        self.inner.address()
    }

    fn context(
        &self,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let queue = FlawedQueue::of(&bind.tx_cq);
        let bind = unwrapped_bindings(self.flaw, bind);
        let opened = self.inner.context(index, info, bind);
        let opened = mixed(self.flaw, opened, || {
            self.inner.context(index, info, self.own.bindings()?)
        });
        if self.flaw != Flaw::OpensAnyContext {
            let inject_size = info.tx_attr.inject_size;
            let flawed = |inner| FlawedEndpoint::new(inner, self.flaw, queue, inject_size);
            return opened.map(|inner| Arc::new(flawed(inner)) as Arc<dyn Endpoint>);
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let any = opened.or_else(|error| last.clone().ok_or(error))?;
        Ok(Arc::clone(last.insert(any)))
    }
}

fn is_for_peers(access: MrAccess) -> bool {
    access.intersects(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE)
}

/// What an endpoint is bound to, without defects but one of bindings.
fn unwrapped_bindings(flaw: Flaw, mut bind: Bindings) -> Bindings {
    bind.tx_cq = FlawedQueue::inner(bind.tx_cq);
    bind.rx_cq = FlawedQueue::inner(bind.rx_cq);
    bind.av = bind.av.map(FlawedAv::inner);
    bind.eq = bind.eq.map(FlawedEq::inner);
    bind.srx = bind.srx.map(FlawedShared::inner);
    let cntrs = &mut bind.cntrs;
    unwrap_counters(cntrs);
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

/// What an open endpoint is bound to, without defects.
pub(super) fn unwrapped_late(late: &LateBindings) -> LateBindings {
    let queue =
        |(cq, is_selective): &(_, bool)| (FlawedQueue::inner(Arc::clone(cq)), *is_selective);
    let mut cntrs = late.cntrs.clone();
    unwrap_counters(&mut cntrs);
    LateBindings {
        tx_cq: late.tx_cq.as_ref().map(queue),
        rx_cq: late.rx_cq.as_ref().map(queue),
        cntrs,
    }
}

fn unwrap_counters(cntrs: &mut Counters) {
    for cntr in [
        &mut cntrs.send,
        &mut cntrs.recv,
        &mut cntrs.read,
        &mut cntrs.write,
        &mut cntrs.remote_read,
        &mut cntrs.remote_write,
    ] {
        *cntr = cntr.take().map(FlawedCounter::inner);
    }
}

impl FlawedDomain {
    /// What is posted in the place of something that waits. Bytes that are changed are copies that
    /// are never freed.
    unsafe fn spoiled<'a>(&self, op: Op<'a>) -> Op<'a> {
        let flip = |iov: &[Iov]| -> &'static [Iov] {
            // SAFETY: the caller's promise.
            let bytes = flipped(unsafe { copied(iov) });
            vec![Iov::new(bytes)].leak()
        };
        let other = |msg: AtomicMsg<'a>| AtomicMsg {
            op: similar(msg.op),
            ..msg
        };
        match (self.flaw, op) {
            (Flaw::FlipsBit, Op::Send(msg)) => Op::Send(msg::SendMsg {
                iov: flip(msg.iov),
                ..msg
            }),
            (Flaw::FlipsBit, Op::TaggedSend(msg)) => Op::TaggedSend(tagged::SendMsg {
                iov: flip(msg.iov),
                ..msg
            }),
            (Flaw::FlipsBit, Op::Write(msg)) => Op::Write(WriteMsg {
                iov: flip(msg.iov),
                ..msg
            }),
            (Flaw::OtherAtomics, Op::Atomic(msg)) => Op::Atomic(other(msg)),
            (Flaw::OtherAtomics, Op::FetchAtomic(msg, fetched)) => {
                Op::FetchAtomic(other(msg), fetched)
            }
            (Flaw::OtherAtomics, Op::CompareAtomic(msg, compared, fetched)) => {
                Op::CompareAtomic(other(msg), compared, fetched)
            }
            (_, op) => op,
        }
    }
}

/// The object inside of one with a defect; itself if it has none.
pub(super) fn unwrapped<T: ?Sized + Any, F: Any>(
    object: Arc<T>,
    as_any: impl Fn(&T) -> &dyn Any,
    inner: impl Fn(&F) -> Arc<T>,
) -> Arc<T> {
    match as_any(&object).downcast_ref::<F>() {
        Some(flawed) => inner(flawed),
        None => object,
    }
}
