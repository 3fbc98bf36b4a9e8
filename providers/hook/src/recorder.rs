//! Recorders: the operation times and the last calls of one endpoint, which `perf` and `flight`
//! record and `fi_top` reads. An operation's time lasts from the post until the application reads
//! the completion.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use selvedge::cq::Entry;
use selvedge::info::RxAttr;
use selvedge::{
    AddressVector, Bindings, CompletionQueue, Context, Error, FiAddr, Info, LateBindings, OpFlags,
    Result,
};
use selvedge_kit::layer::{Layered, Layers};
use selvedge_kit::telemetry::calls::{Call, CallRecorder};
use selvedge_kit::telemetry::latency::{Histogram, LatencyRecorder};
use selvedge_kit::telemetry::{Settings, TimedOp, crash, endpoint_name, now};

use crate::open_ops::{OpenOp, OpenOps};
use crate::post::Post;
use crate::provider::HookLayers;
use crate::queues::HookedQueue;

/// The records that the hooks of a fabric keep of every endpoint.
#[derive(Debug, Default)]
pub(crate) struct RecorderConfig {
    /// Whether times are recorded, and the sums for closed endpoints.
    pub(crate) times: Option<Arc<Totals>>,
    pub(crate) calls: bool,
    /// Counts removals from address vectors: an insertion after a removal may give an address index
    /// to another peer.
    pub(crate) address_removals: Arc<AtomicU64>,
}

impl RecorderConfig {
    pub(crate) const fn is_any(&self) -> bool {
        self.calls || self.times.is_some()
    }
}

/// The times of closed endpoints.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<Vec<Histogram>>);

impl Totals {
    fn add(&self, histograms: Vec<Histogram>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for histogram in histograms {
            let is_same = |it: &&mut Histogram| {
                (it.op, it.size_class) == (histogram.op, histogram.size_class)
            };
            match all.iter_mut().find(is_same) {
                Some(existing) => existing.merge(&histogram),
                None => all.push(histogram),
            }
        }
    }

    /// All histograms, sorted.
    pub(crate) fn histograms(&self) -> Vec<Histogram> {
        let mut histograms = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        histograms.sort_by_key(|histogram| (histogram.op, histogram.size_class));
        histograms
    }
}

/// One direction of an endpoint: transmit or receive.
#[derive(Debug)]
struct Direction {
    /// The open operations of the direction's queue. Each post reads the field. Binding the open
    /// endpoint to another queue writes it.
    open_ops: RwLock<Option<Arc<OpenOps>>>,
    is_selective: AtomicBool,
    defaults: OpFlags,
}

impl Direction {
    fn new(queue: &Arc<dyn CompletionQueue>, is_selective: bool, defaults: OpFlags) -> Self {
        Self {
            open_ops: RwLock::new(HookedQueue::open_ops(&**queue)),
            is_selective: AtomicBool::new(is_selective),
            defaults,
        }
    }

    fn open_ops(&self) -> Option<Arc<OpenOps>> {
        let open_ops = self.open_ops.read().unwrap_or_else(PoisonError::into_inner);
        open_ops.clone()
    }

    /// Binds the endpoint to another queue.
    fn bind(&self, (queue, is_selective): &(Arc<dyn CompletionQueue>, bool)) {
        let mut open_ops = self
            .open_ops
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *open_ops = HookedQueue::open_ops(&**queue);
        self.is_selective.store(*is_selective, Ordering::Relaxed);
    }

    /// Whether only operations with the completion flag are reported.
    fn is_selective(&self) -> bool {
        self.is_selective.load(Ordering::Relaxed)
    }

    fn flags(&self, flags: OpFlags) -> OpFlags {
        match flags.contains(OpFlags::DEFAULT) {
            true => flags | self.defaults,
            false => flags,
        }
    }
}

/// The records of one endpoint.
#[derive(Debug)]
pub(crate) struct Recorder {
    latency: Option<(LatencyRecorder, Arc<Totals>)>,
    calls: Option<CallRecorder>,
    tx: Direction,
    rx: Direction,
    names: Names,
}

/// The bindings of an endpoint that its recorder uses.
#[derive(Debug)]
pub(crate) struct RecordedBindings {
    tx: Direction,
    rx: Direction,
    av: Option<Arc<dyn AddressVector>>,
}

impl RecordedBindings {
    pub(crate) fn new(info: &Info, bind: &Bindings) -> Self {
        Self {
            tx: Direction::new(&bind.tx_cq, bind.tx_selective, info.tx_attr.op_flags),
            rx: Direction::new(&bind.rx_cq, bind.rx_selective, info.rx_attr.op_flags),
            av: bind
                .av
                .as_ref()
                .map(Layered::<_, <HookLayers as Layers>::Av>::below),
        }
    }

    /// The bindings of shared receives. The receives complete at the endpoints that use them
    /// ([`SharedRecorder::complete_at`]).
    pub(crate) fn shared(attr: &RxAttr) -> Self {
        let direction = |open_ops| Direction {
            open_ops: RwLock::new(open_ops),
            is_selective: AtomicBool::new(false),
            defaults: attr.op_flags,
        };
        Self {
            tx: direction(None),
            rx: direction(Some(Arc::default())),
            av: None,
        }
    }
}

impl Recorder {
    /// Opens the recorder of the endpoint or the shared receives with this name; `None` if no hook
    /// requests a recorder.
    ///
    /// # Errors
    /// The system's error if there is no memory; the errors of [`crash::install`].
    pub(crate) fn open(
        recorder_config: &RecorderConfig,
        info: &Info,
        bound: RecordedBindings,
        name: &str,
    ) -> Result<Option<Arc<Self>>, Error> {
        if !recorder_config.is_any() {
            return Ok(None);
        }
        let provider = &info.fabric_attr.prov_name;
        let times = recorder_config.times.as_ref().map(|totals| {
            let latency = LatencyRecorder::open(provider, name)?;
            Ok::<_, Error>((latency, Arc::clone(totals)))
        });
        let calls = recorder_config.calls.then(|| {
            crash::install(&Settings::read(info.params())?)?;
            CallRecorder::open(provider, name)
        });
        Ok(Some(Arc::new(Self {
            latency: times.transpose()?,
            calls: calls.transpose()?,
            tx: bound.tx,
            rx: bound.rx,
            names: Names::new(bound.av, &recorder_config.address_removals),
        })))
    }

    /// Binds the open endpoint to further queues.
    pub(crate) fn bind_late(&self, late: &LateBindings) {
        for (direction, queue) in [(&self.tx, &late.tx_cq), (&self.rx, &late.rx_cq)] {
            if let Some(queue) = queue {
                direction.bind(queue);
            }
        }
    }

    /// Makes a post and records it.
    pub(crate) fn record_call(
        self: &Arc<Self>,
        post: &Post<'_>,
        run: impl FnOnce() -> Result,
    ) -> Result {
        let started = now();
        let number = self.calls.as_ref().map(|calls| {
            let peer_name = self.names.name(post.peer);
            let peer = if post.object_name.is_empty() {
                &*peer_name
            } else {
                &*post.object_name
            };
            calls.begin(&Call {
                name: post.name,
                peer,
                len: post.len,
                tag: post.tag,
                key: post.key,
                context: post.context.0,
            })
        });
        let registered = self.register(post, started);
        let result = run();
        if let (Some(calls), Some(number)) = (&self.calls, number) {
            calls.end(number, result);
        }
        if let (Err(_), Some((open_ops, key))) = (result, registered) {
            open_ops.remove_failed(key, self, started);
        }
        if let (Ok(()), Some(TimedOp::Inject), Some((latency, _))) =
            (result, post.op_kind, &self.latency)
        {
            latency.record(TimedOp::Inject, post.len, now() - started);
        }
        result
    }

    /// Registers an operation before its post, because the completion may be read before the post
    /// returns.
    fn register(
        self: &Arc<Self>,
        post: &Post<'_>,
        started: u64,
    ) -> Option<(Arc<OpenOps>, (TimedOp, Context))> {
        let op_kind = post.op_kind.filter(|op_kind| *op_kind != TimedOp::Inject)?;
        let is_receive = matches!(op_kind, TimedOp::Receive | TimedOp::TaggedReceive);
        let direction = if is_receive { &self.rx } else { &self.tx };
        let flags = direction.flags(post.flags);
        if direction.is_selective() && !flags.contains(OpFlags::COMPLETION) {
            return None;
        }
        let open_ops = direction.open_ops()?;
        let is_multi = is_receive && flags.contains(OpFlags::MULTI_RECV);
        let peek_flags = OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD;
        let is_peek = is_receive && flags.intersects(peek_flags);
        let open = OpenOp {
            recorder: Arc::clone(self),
            started,
            len: post.len,
            peer: post.peer,
            tag: post.tag,
            is_timed: !is_multi && !is_peek,
            is_multi,
        };
        open_ops.begin((op_kind, post.context), open);
        Some((open_ops, (op_kind, post.context)))
    }

    /// Records that the application has read the completion of an operation.
    pub(crate) fn complete(
        &self,
        op_kind: TimedOp,
        open: &OpenOp,
        entry: &Entry,
        (now, outcome): (u64, Result),
    ) {
        let took = now.saturating_sub(open.started);
        let (len, tag) = match op_kind {
            TimedOp::Receive | TimedOp::TaggedReceive => (entry.len, entry.tag),
            _ => (open.len, open.tag),
        };
        if let Some((latency, _)) = &self.latency
            && open.is_timed
            && outcome.is_ok()
        {
            latency.record(op_kind, len, took);
        }
        if let Some(calls) = &self.calls {
            let call = Call {
                name: op_kind.name(),
                peer: &self.names.name(open.peer),
                len,
                tag,
                key: 0,
                context: entry.context.0,
            };
            calls.complete(&call, took, outcome);
        }
    }

    /// Closes the recorder.
    pub(crate) fn close(self: &Arc<Self>) {
        for direction in [&self.tx, &self.rx] {
            if let Some(open_ops) = direction.open_ops() {
                open_ops.remove_endpoint(self);
            }
        }
        if let Some((latency, totals)) = &self.latency {
            totals.add(latency.histograms());
        }
    }
}

/// The recorder of shared receives. The recorder is closed after the receives' handle and all
/// endpoints that use the receives.
#[derive(Debug)]
pub(crate) struct SharedRecorder(pub(crate) Arc<Recorder>);

impl SharedRecorder {
    /// Matches the completions of an endpoint with the shared receives. If one of the endpoints has
    /// selective completion, receives without the completion flag are not recorded.
    pub(crate) fn complete_at(&self, bound: &RecordedBindings) {
        let shared = &self.0.rx;
        if bound.rx.is_selective() {
            shared.is_selective.store(true, Ordering::Relaxed);
        }
        if let (Some(queue), Some(shared)) = (bound.rx.open_ops(), shared.open_ops()) {
            queue.add_shared(&shared);
        }
    }
}

impl Drop for SharedRecorder {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A cache of the peers' names, which is emptied after an address was removed.
#[derive(Debug)]
struct Names {
    av: Option<Arc<dyn AddressVector>>,
    removals: Arc<AtomicU64>,
    cached: Mutex<(u64, HashMap<FiAddr, Arc<str>>)>,
}

impl Names {
    fn new(av: Option<Arc<dyn AddressVector>>, removals: &Arc<AtomicU64>) -> Self {
        let removals = Arc::clone(removals);
        let cached = Mutex::default();
        Self {
            av,
            removals,
            cached,
        }
    }

    fn name(&self, peer: FiAddr) -> Arc<str> {
        let Some(av) = self.av.as_ref().filter(|_| peer != FiAddr::UNSPEC) else {
            return Arc::default();
        };
        let removals = self.removals.load(Ordering::Relaxed);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.0 != removals {
            *cached = (removals, HashMap::new());
        }
        let name = || {
            av.lookup(peer)
                .map_or_else(|_| Arc::default(), |it| endpoint_name(&it).into())
        };
        Arc::clone(cached.1.entry(peer).or_insert_with(name))
    }
}
