//! The common part of every endpoint: its queues, default flags and completion policy.

mod bound;
mod cntrs;
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
use crate::domain::identity::DomainId;
use crate::endpoint::work::DeferredOps;
use crate::mr::{ObjectSharing, RegionCounters};
use crate::rate_limit::warn_limited;
use crate::srx::Kind;
use crate::telemetry::{self, EventKind, OpCounter, Settings, StatsPage};
use crate::wait::Waiters;

use bound::{Bound, bound_cq};
pub use bound::{Drivers, bound_av, bound_eq, bound_srx};
pub(crate) use cntrs::Cntrs;
pub use late::RemoteCounters;

/// The resolved bindings of an endpoint, and the reporting of its completed operations.
///
/// Under selective completion only operations with [`OpFlags::COMPLETION`] report success. Errors
/// are always reported, and so is the last message of a multi-receive buffer, which gives the
/// buffer back. Counters count every operation.
#[derive(Debug)]
pub struct Ep {
    /// The queue for sends and other operations that this endpoint initiates.
    pub tx_cq: Arc<CqRing>,
    /// The queue for receives; may be the same queue.
    pub rx_cq: Arc<CqRing>,
    /// Whether every operation is reported on `tx_cq`.
    tx_all: bool,
    /// Whether every operation is reported on `rx_cq`.
    rx_all: bool,
    tx_default: OpFlags,
    rx_default: OpFlags,
    tagged_rx_default: OpFlags,
    /// Whether messages of unknown sources are reported as errors ([`Caps::SOURCE_ERR`]).
    source_err: bool,
    /// The largest length of provider data in an error entry, in bytes.
    max_err_data: usize,
    cntrs: Cntrs,
    deferred_ops: Arc<DeferredOps>,
    /// The store for the completions of the layer above the endpoint.
    layer: Option<Arc<LayerCompletions>>,
    waiters: Arc<Waiters>,
    /// The statistics that other processes can read.
    pub stats: StatsPage,
}

impl Ep {
    /// Resolves the bindings of an endpoint.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a completion queue or counter of another domain, and for an
    /// `FI_SIGHT_*` parameter that cannot be read.
    pub fn resolve(bind: &Bindings, info: &Info, domain: &DomainId) -> Result<Self, Error> {
        telemetry::crash::install(&Settings::read(&Params::from_env())?)?;
        let stats = StatsPage::open(&info.fabric_attr.prov_name)?;
        Self::resolve_with_page(stats, bind, info, domain)
    }

    /// As [`Self::resolve`], for a layer: other processes see the statistics of the endpoint below.
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
        let tx_cq = bound_cq(&bind.tx_cq, domain, TX_CQ)?;
        let rx_cq = bound_cq(&bind.rx_cq, domain, RX_CQ)?;
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

    /// The deferred operations of the endpoint.
    pub const fn deferred_ops(&self) -> &Arc<DeferredOps> {
        &self.deferred_ops
    }

    /// Adds a layer above the endpoint. Operations with [`OpFlags::PEER_TRANSFER`] are reported to
    /// the layer alone, and not counted.
    #[must_use]
    pub fn with_layer(mut self, layer: Option<Arc<LayerCompletions>>) -> Self {
        self.layer = layer;
        self
    }

    /// Whether there is a layer that may post.
    pub fn has_layer(&self) -> bool {
        self.layer.is_some()
    }

    /// Reports the completion of one of the layer's operations to the layer.
    #[cold]
    #[inline(never)]
    fn report_to_layer(&self, context: Context, outcome: Result<usize, (Errno, String)>) {
        if let Some(layer) = &self.layer {
            layer.put(context, outcome);
            self.wake();
        }
    }

    /// The queues and counters that drive the endpoint.
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

    /// Wakes the threads that are parked at the queues and counters of this endpoint; they arm it
    /// again before they park ([`crate::cq::Progress::arm`]).
    #[cold]
    pub fn wake(&self) {
        self.waiters.wake();
    }

    /// The wait objects at which threads are parked for this endpoint.
    pub const fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// The number of completions that the application has not read.
    pub fn unread(&self) -> usize {
        let tx_unread = self.tx_cq.unread();
        if Arc::ptr_eq(&self.tx_cq, &self.rx_cq) {
            tx_unread
        } else {
            tx_unread + self.rx_cq.unread()
        }
    }

    /// The flags of a send or another operation that this endpoint initiates, with the endpoint's
    /// defaults where [`OpFlags::DEFAULT`] requests them.
    #[inline]
    pub const fn tx_flags(&self, flags: OpFlags) -> OpFlags {
        resolve_flags(flags, self.tx_default)
    }

    /// The flags of an injected operation (fi_inject(3), fi_inject_write(3), fi_inject_atomic(3)):
    /// the endpoint's defaults. The completion level among them decides when the operation is
    /// counted (fi_endpoint(3), "op_flags").
    #[inline]
    pub const fn inject_flags(&self) -> OpFlags {
        self.tx_flags(OpFlags::INJECT.union(OpFlags::DEFAULT))
    }

    /// The flags of a receive, with the defaults as in [`Self::tx_flags`]. A default
    /// [`OpFlags::MULTI_RECV`] applies to untagged receives only; tagged ones have to set it
    /// themselves.
    #[inline]
    pub const fn rx_flags(&self, kind: Kind, flags: OpFlags) -> OpFlags {
        match kind {
            Kind::Msg => resolve_flags(flags, self.rx_default),
            Kind::Tagged => resolve_flags(flags, self.tagged_rx_default),
        }
    }

    /// Reports success of an operation of `len` bytes with the resolved flags `op`. `kind` is its
    /// kind, for instance [`crate::srx::Kind::sent`].
    #[inline(always)]
    pub fn tx_done(&self, context: Context, kind: CompletionFlags, op: OpFlags, len: usize) {
        let is_reported = self.tx_all || op.contains(OpFlags::COMPLETION);
        if !is_reported && op.contains(OpFlags::PEER_TRANSFER) {
            return self.report_to_layer(context, Ok(len));
        }
        let (cntr, counter) = self.tx_counts(kind);
        self.stats.count(counter, len);
        if let Some(cntr) = cntr {
            return self.tx_done_counted(cntr, (context, kind), is_reported, len);
        }
        if is_reported {
            self.tx_cq.push_plain(context, kind);
        }
    }

    /// The part of [`Self::tx_done`] for endpoints with a counter, as a separate function so that
    /// endpoints without a counter save no registers for the call.
    #[inline(never)]
    fn tx_done_counted(
        &self,
        cntr: &Cntr,
        (context, kind): (Context, CompletionFlags),
        is_reported: bool,
        len: usize,
    ) {
        cntr.count(len);
        if is_reported {
            self.tx_cq.push_plain(context, kind);
        }
    }

    /// As [`Self::tx_done`], for deferred work.
    #[cold]
    pub(crate) fn tx_deferred_done(
        &self,
        context: Context,
        kind: CompletionFlags,
        op: OpFlags,
        len: usize,
    ) {
        let Some(op) = self.deferred_ops.complete(context) else {
            return self.tx_done(context, kind, op, len);
        };
        self.stats.count(self.tx_counts(kind).1, len);
        if op.succeeded() {
            self.tx_cq.push_plain(op.context, kind);
        }
    }

    /// Counts an operation of a kind that never has a completion (fi_inject(3)).
    #[inline(always)]
    pub fn tx_counted(&self, kind: CompletionFlags, len: usize) {
        let (cntr, counter) = self.tx_counts(kind);
        self.stats.count(counter, len);
        if let Some(cntr) = cntr {
            cntr.count(len);
        }
    }

    /// Counts a read by a peer of `len` bytes of this endpoint's memory.
    #[inline]
    pub fn peer_read(&self, len: usize) {
        self.stats.count(OpCounter::PeerRead, len);
        if let Some(cntr) = &self.cntrs.remote_read {
            cntr.count(len);
        }
    }

    /// Counts a write by a peer of `len` bytes of this endpoint's memory.
    #[inline]
    pub fn peer_wrote(&self, len: usize) {
        self.stats.count(OpCounter::PeerWritten, len);
        if let Some(cntr) = &self.cntrs.remote_write {
            cntr.count(len);
        }
    }

    /// Whether the endpoint has a counter of reads or writes by peers.
    #[inline]
    pub fn counts_remote_access(&self) -> bool {
        self.cntrs.remote_read.is_some() || self.cntrs.remote_write.is_some()
    }

    /// The counters of reads and of writes by peers, for a provider over other providers: those
    /// count the operations.
    pub fn remote_cntrs(&self) -> [Option<&Arc<Cntr>>; 2] {
        let Cntrs {
            remote_read,
            remote_write,
            ..
        } = &self.cntrs;
        [remote_read.as_ref(), remote_write.as_ref()]
    }

    /// Reports that an operation to `peer` has failed. `detail` names the peer and the cause.
    #[cold]
    pub fn tx_failed(
        &self,
        context: Context,
        kind: CompletionFlags,
        errno: Errno,
        peer: FiAddr,
        detail: impl Into<String>,
    ) {
        let Some(context) = self.failed_context(context, kind) else {
            return;
        };
        let detail = detail.into();
        self.stats.count(OpCounter::SendErrors, 0);
        self.stats
            .record_event(EventKind::SendFailed, &detail, errno.as_raw() as u64);
        let entry = Entry {
            context,
            flags: kind,
            ..Entry::default()
        };
        let mut error = ErrEntry::new(entry, errno, detail);
        error.src = peer;
        self.tx_cq.push_err(error);
    }

    /// As [`Self::tx_failed`], for an operation of a kind that never has a completion: without an
    /// entry if the queue stores none for failed injects
    /// ([`selvedge::cq::Attr::drops_failed_injects`]).
    #[cold]
    pub(crate) fn inject_failed(
        &self,
        kind: CompletionFlags,
        errno: Errno,
        peer: FiAddr,
        detail: impl Into<String>,
    ) {
        if !self.tx_cq.drops_failed_injects() {
            return self.tx_failed(Context::default(), kind, errno, peer, detail);
        }
        let detail = detail.into();
        if let Some(cntr) = self.cntrs.for_kind(kind) {
            cntr.add_err(1);
        }
        self.stats.count(OpCounter::SendErrors, 0);
        self.stats
            .record_event(EventKind::SendFailed, &detail, errno.as_raw() as u64);
        warn_limited(TARGET, format_args!("an inject has failed: {detail}"));
    }

    /// Counts a failed operation. Returns the context of the error entry; `None` if the operation
    /// has no error entry.
    #[cold]
    fn failed_context(&self, context: Context, kind: CompletionFlags) -> Option<Context> {
        if let Some(op) = self.deferred_ops.complete(context) {
            return op.failed().then_some(op.context);
        }
        if let Some(cntr) = self.cntrs.for_kind(kind) {
            cntr.add_err(1);
        }
        Some(context)
    }

    /// Whether success of an operation with the resolved flags `op` is reported.
    #[inline]
    pub const fn reports(&self, op: OpFlags) -> bool {
        self.tx_all || op.contains(OpFlags::COMPLETION)
    }

    /// Reports to the layer that one of its operations has failed.
    #[cold]
    pub(crate) fn layer_failed(&self, context: Context, errno: Errno, detail: impl Into<String>) {
        self.report_to_layer(context, Err((errno, detail.into())));
    }

    #[inline(always)]
    fn tx_counts(&self, kind: CompletionFlags) -> (Option<&Arc<Cntr>>, OpCounter) {
        let cntrs = &self.cntrs;
        if kind.contains(CompletionFlags::SEND) {
            (cntrs.send.as_ref(), OpCounter::Sent)
        } else if kind.contains(CompletionFlags::READ) {
            (cntrs.read.as_ref(), OpCounter::Read)
        } else {
            (cntrs.write.as_ref(), OpCounter::Written)
        }
    }
}

#[inline]
const fn resolve_flags(flags: OpFlags, default: OpFlags) -> OpFlags {
    if flags.contains(OpFlags::DEFAULT) {
        flags.difference(OpFlags::DEFAULT).union(default)
    } else {
        flags
    }
}

const TARGET: &str = "selvedge::core::ep_data";

/// The names of the queues in error texts.
const TX_CQ: &str = "tx_cq of an endpoint";
const RX_CQ: &str = "rx_cq of an endpoint";

#[cfg(test)]
mod tests;
