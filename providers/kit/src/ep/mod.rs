//! What every endpoint keeps: its queues, default flags and completion policy.

mod bound;
mod late;
mod received;

use std::sync::{Arc, Mutex, Weak};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::param::Params;
use selvedge::{
    Bindings, Caps, CompletionFlags, Context, Counter, Errno, Error, FiAddr, Info, OpFlags,
};

use crate::cntr::Cntr;
use crate::coll::LayerCompletions;
use crate::cq::CqRing;
use crate::identity::DomainId;
use crate::mr::{ObjectSharing, RegionCounters};
use crate::rate_limit::warn_limited;
use crate::srx::Kind;
use crate::telemetry::{self, EventKind, OpCounter, Settings, StatsPage};
use crate::wait::Waiters;
use crate::work::DeferredOps;

pub(crate) use bound::Cntrs;
use bound::{Bound, own_cq};
pub use bound::{Drivers, bound_av, bound_eq, bound_srx};
pub use late::RemoteCounters;

/// The resolved bindings of an endpoint, and how its operations report that they are done.
///
/// Under selective completion only operations with [`OpFlags::COMPLETION`] report success; errors
/// always do, and so does the last message of a multi-receive buffer, which gives the buffer back.
/// Counters count both.
#[derive(Debug)]
pub struct Ep {
    /// Where sends and other own operations complete.
    pub tx_cq: Arc<CqRing>,
    /// Where receives complete; may be the same queue.
    pub rx_cq: Arc<CqRing>,
    /// Report every operation on `tx_cq`.
    tx_all: bool,
    /// Report every operation on `rx_cq`.
    rx_all: bool,
    tx_default: OpFlags,
    rx_default: OpFlags,
    tagged_rx_default: OpFlags,
    /// Whether messages of unknown sources are reported as errors ([`Caps::SOURCE_ERR`]).
    source_err: bool,
    /// Bytes of provider data that an error entry has at most.
    max_err_data: usize,
    cntrs: Cntrs,
    deferred_ops: Arc<DeferredOps>,
    /// Where the operations of a layer above the endpoint report.
    layer: Option<Arc<LayerCompletions>>,
    waiters: Arc<Waiters>,
    /// What other processes see of the endpoint.
    pub stats: StatsPage,
}

impl Ep {
    /// Resolves what an endpoint was bound to.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a completion queue or counter of another domain, and for an `FI_SIGHT_*`
    /// parameter that cannot be read.
    pub fn resolve(bind: &Bindings, info: &Info, domain: &DomainId) -> Result<Self, Error> {
        telemetry::crash::install(&Settings::read(&Params::from_env())?)?;
        let stats = StatsPage::open(&info.fabric_attr.prov_name)?;
        Self::resolve_with_page(stats, bind, info, domain)
    }

    /// As [`Self::resolve`], for a layer: others see the endpoint below.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub(crate) fn resolve_without_telemetry(
        bind: &Bindings,
        info: &Info,
        domain: &DomainId,
    ) -> Result<Self, Error> {
        Self::resolve_with_page(StatsPage::private()?, bind, info, domain)
    }

    fn resolve_with_page(
        stats: StatsPage,
        bind: &Bindings,
        info: &Info,
        domain: &DomainId,
    ) -> Result<Self, Error> {
        let tx_cq = own_cq(&bind.tx_cq, domain, TX_CQ)?;
        let rx_cq = own_cq(&bind.rx_cq, domain, RX_CQ)?;
        let cntrs = Cntrs::resolve(&bind.cntrs, domain)?;
        Ok(Self {
            deferred_ops: Arc::new(DeferredOps::new(domain, &tx_cq, &rx_cq, cntrs.clone())),
            tx_cq,
            rx_cq,
            tx_all: !bind.tx_selective,
            rx_all: !bind.rx_selective,
            tx_default: info.tx_attr.op_flags,
            rx_default: info.rx_attr.op_flags,
            tagged_rx_default: info.rx_attr.op_flags.difference(OpFlags::MULTI_RECV),
            source_err: (info.caps | info.rx_attr.caps).contains(Caps::SOURCE_ERR),
            max_err_data: info.domain_attr.max_err_data,
            cntrs,
            layer: None,
            waiters: Arc::default(),
            stats,
        })
    }

    /// What the endpoint owes for deferred work.
    pub const fn deferred_ops(&self) -> &Arc<DeferredOps> {
        &self.deferred_ops
    }

    /// Serves a layer, too: operations with [`OpFlags::PEER_TRANSFER`] are told to it alone, and
    /// counted nowhere.
    #[must_use]
    pub fn with_layer(mut self, layer: Option<Arc<LayerCompletions>>) -> Self {
        self.layer = layer;
        self
    }

    /// Whether there is a layer that may post.
    pub fn has_layer(&self) -> bool {
        self.layer.is_some()
    }

    /// Tells the layer of the end of one of its operations.
    #[cold]
    #[inline(never)]
    fn report_to_layer(&self, context: Context, outcome: Result<usize, (Errno, String)>) {
        if let Some(layer) = &self.layer {
            layer.put(context, outcome);
            self.wake();
        }
    }

    /// What drives the endpoint.
    pub fn drivers(&self) -> Drivers {
        Drivers {
            bound: Mutex::new(Bound {
                cqs: vec![Arc::clone(&self.tx_cq), Arc::clone(&self.rx_cq)],
                cntrs: self.cntrs.iter().map(Arc::clone).collect(),
            }),
            auto: None,
            region_counters: Arc::new(RegionCounters::of(
                self.deferred_ops.domain(),
                ObjectSharing::AcrossGroups,
            )),
            eq: Weak::new(),
            deferred_ops: Arc::clone(&self.deferred_ops),
        }
    }

    /// Has everybody who sleeps at a queue or counter of this endpoint ask again whether it may
    /// ([`crate::cq::Progress::arm`]).
    #[cold]
    pub fn wake(&self) {
        self.waiters.wake();
    }

    /// Where threads that sleep for this endpoint are registered.
    pub const fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// Completions that nobody has read.
    pub fn unread(&self) -> usize {
        let own = self.tx_cq.unread();
        match Arc::ptr_eq(&self.tx_cq, &self.rx_cq) {
            true => own,
            false => own + self.rx_cq.unread(),
        }
    }

    /// The flags of a send or another own operation, with the endpoint's defaults where
    /// [`OpFlags::DEFAULT`] asks for them.
    #[inline]
    pub const fn tx_flags(&self, flags: OpFlags) -> OpFlags {
        resolved(flags, self.tx_default)
    }

    /// The flags of an operation that is injected (fi_inject(3), fi_inject_write(3),
    /// fi_inject_atomic(3)): the endpoint's defaults, of which a completion level decides when the
    /// operation is counted (fi_endpoint(3), "op_flags").
    #[inline]
    pub const fn inject_flags(&self) -> OpFlags {
        self.tx_flags(OpFlags::INJECT.union(OpFlags::DEFAULT))
    }

    /// The flags of a receive, likewise. A default [`OpFlags::MULTI_RECV`] is for untagged receives;
    /// tagged ones have to say it.
    #[inline]
    pub const fn rx_flags(&self, kind: Kind, flags: OpFlags) -> OpFlags {
        match kind {
            Kind::Msg => resolved(flags, self.rx_default),
            Kind::Tagged => resolved(flags, self.tagged_rx_default),
        }
    }

    /// An own operation of `len` bytes with the resolved flags `op` is done. `what` says which, for
    /// instance [`crate::srx::Kind::sent`].
    #[inline(always)]
    pub fn tx_done(&self, context: Context, what: CompletionFlags, op: OpFlags, len: usize) {
        let reports = self.tx_all || op.contains(OpFlags::COMPLETION);
        if !reports && op.contains(OpFlags::PEER_TRANSFER) {
            return self.report_to_layer(context, Ok(len));
        }
        let (cntr, tally) = self.tx_counts(what);
        self.stats.count(tally, len);
        if let Some(cntr) = cntr {
            return self.tx_done_counted(cntr, (context, what), reports, len);
        }
        if reports {
            self.tx_cq.push_plain(context, what);
        }
    }

    /// The rest of [`Self::tx_done`] where it is counted. Apart, so that where it is not no register
    /// is put aside for the call.
    #[inline(never)]
    fn tx_done_counted(
        &self,
        cntr: &Cntr,
        (context, what): (Context, CompletionFlags),
        reports: bool,
        len: usize,
    ) {
        cntr.count(len);
        if reports {
            self.tx_cq.push_plain(context, what);
        }
    }

    /// As [`Self::tx_done`], for deferred work.
    #[cold]
    pub(crate) fn tx_deferred_done(
        &self,
        context: Context,
        what: CompletionFlags,
        op: OpFlags,
        len: usize,
    ) {
        let Some(op) = self.deferred_ops.complete(context) else {
            return self.tx_done(context, what, op, len);
        };
        self.stats.count(self.tx_counts(what).1, len);
        if op.succeeded() {
            self.tx_cq.push_plain(op.context, what);
        }
    }

    /// An own operation of the kind that never completes (fi_inject(3)) is done: it only counts.
    #[inline(always)]
    pub fn tx_counted(&self, what: CompletionFlags, len: usize) {
        let (cntr, tally) = self.tx_counts(what);
        self.stats.count(tally, len);
        if let Some(cntr) = cntr {
            cntr.count(len);
        }
    }

    /// A peer has read `len` bytes of this endpoint's memory.
    #[inline]
    pub fn peer_read(&self, len: usize) {
        self.stats.count(OpCounter::PeerRead, len);
        if let Some(cntr) = &self.cntrs.remote_read {
            cntr.count(len);
        }
    }

    /// A peer has written `len` bytes of this endpoint's memory.
    #[inline]
    pub fn peer_wrote(&self, len: usize) {
        self.stats.count(OpCounter::PeerWritten, len);
        if let Some(cntr) = &self.cntrs.remote_write {
            cntr.count(len);
        }
    }

    /// Whether anybody counts what peers read or write.
    #[inline]
    pub fn counts_remote_access(&self) -> bool {
        self.cntrs.remote_read.is_some() || self.cntrs.remote_write.is_some()
    }

    /// What counts reads and writes by peers, for a provider over others, which count themselves.
    pub fn remote_cntrs(&self) -> [Option<&Arc<Cntr>>; 2] {
        let Cntrs {
            remote_read,
            remote_write,
            ..
        } = &self.cntrs;
        [remote_read.as_ref(), remote_write.as_ref()]
    }

    /// An own operation to `peer` has failed; `detail` says which peer and what happened.
    #[cold]
    pub fn tx_failed(
        &self,
        context: Context,
        what: CompletionFlags,
        errno: Errno,
        peer: FiAddr,
        detail: impl Into<String>,
    ) {
        let Some(context) = self.failed_context(context, what) else {
            return;
        };
        let detail = detail.into();
        self.stats.count(OpCounter::SendErrors, 0);
        self.stats
            .record_event(EventKind::SendFailed, &detail, errno.as_raw() as u64);
        let entry = Entry {
            context,
            flags: what,
            ..Entry::default()
        };
        let mut error = ErrEntry::new(entry, errno, detail);
        error.src = peer;
        self.tx_cq.push_err(error);
    }

    /// As [`Self::tx_failed`], for an operation of the kind that never completes: without an entry
    /// where the queue wants none ([`selvedge::cq::Attr::drops_failed_injects`]).
    #[cold]
    pub(crate) fn inject_failed(
        &self,
        what: CompletionFlags,
        errno: Errno,
        peer: FiAddr,
        detail: impl Into<String>,
    ) {
        if !self.tx_cq.drops_failed_injects() {
            return self.tx_failed(Context::default(), what, errno, peer, detail);
        }
        let detail = detail.into();
        if let Some(cntr) = self.cntrs.of(what) {
            cntr.add_err(1);
        }
        self.stats.count(OpCounter::SendErrors, 0);
        self.stats
            .record_event(EventKind::SendFailed, &detail, errno.as_raw() as u64);
        warn_limited(TARGET, format_args!("an inject has failed: {detail}"));
    }

    /// Counts a failure where that is due. The context that its entry carries, if it is to have one.
    #[cold]
    fn failed_context(&self, context: Context, what: CompletionFlags) -> Option<Context> {
        if let Some(op) = self.deferred_ops.complete(context) {
            return op.failed().then_some(op.context);
        }
        if let Some(cntr) = self.cntrs.of(what) {
            cntr.add_err(1);
        }
        Some(context)
    }

    /// Whether an own operation with the resolved flags `op` is reported when it succeeds.
    #[inline]
    pub const fn reports(&self, op: OpFlags) -> bool {
        self.tx_all || op.contains(OpFlags::COMPLETION)
    }

    /// An operation of the layer's has failed.
    #[cold]
    pub(crate) fn layer_failed(&self, context: Context, errno: Errno, detail: impl Into<String>) {
        self.report_to_layer(context, Err((errno, detail.into())));
    }

    #[inline(always)]
    fn tx_counts(&self, what: CompletionFlags) -> (Option<&Arc<Cntr>>, OpCounter) {
        let cntrs = &self.cntrs;
        if what.contains(CompletionFlags::SEND) {
            (cntrs.send.as_ref(), OpCounter::Sent)
        } else if what.contains(CompletionFlags::READ) {
            (cntrs.read.as_ref(), OpCounter::Read)
        } else {
            (cntrs.write.as_ref(), OpCounter::Written)
        }
    }
}

#[inline]
const fn resolved(flags: OpFlags, default: OpFlags) -> OpFlags {
    if flags.contains(OpFlags::DEFAULT) {
        flags.difference(OpFlags::DEFAULT).union(default)
    } else {
        flags
    }
}

const TARGET: &str = "selvedge::core::ep_data";

/// What messages call the queues of an endpoint.
const TX_CQ: &str = "tx_cq of an endpoint";
const RX_CQ: &str = "rx_cq of an endpoint";

#[cfg(test)]
mod tests;
