//! What `perf` and `flight` keep of an endpoint, where `fi_top` reads it: how long its operations took
//! from the post to the program's reading of the completion, and its last calls.

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

use crate::ledger::{Ledger, Open};
use crate::post::Post;
use crate::provider::HookLayers;
use crate::queues::HookedQueue;

/// What is kept of every endpoint of a fabric.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Times, and where those of closed endpoints are added up.
    pub(crate) times: Option<Arc<Totals>>,
    pub(crate) calls: bool,
    /// Changes when a peer may have got another name.
    pub(crate) names: Arc<AtomicU64>,
}

impl Wanted {
    pub(crate) const fn is_any(&self) -> bool {
        self.calls || self.times.is_some()
    }
}

/// The times of endpoints that are closed.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<Vec<Histogram>>);

impl Totals {
    fn add(&self, rows: Vec<Histogram>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let is_same = |it: &&mut Histogram| (it.op, it.size_class) == (row.op, row.size_class);
            match all.iter_mut().find(is_same) {
                Some(known) => known.merge(&row),
                None => all.push(row),
            }
        }
    }

    /// All of them, in order.
    pub(crate) fn rows(&self) -> Vec<Histogram> {
        let mut rows = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        rows.sort_by_key(|row| (row.op, row.size_class));
        rows
    }
}

/// One direction of an endpoint.
#[derive(Debug)]
struct Side {
    /// Read at each post, and written when the open endpoint is bound to another queue.
    ledger: RwLock<Option<Arc<Ledger>>>,
    is_selective: AtomicBool,
    defaults: OpFlags,
}

impl Side {
    fn of(queue: &Arc<dyn CompletionQueue>, is_selective: bool, defaults: OpFlags) -> Self {
        Self {
            ledger: RwLock::new(HookedQueue::ledger(&**queue)),
            is_selective: AtomicBool::new(is_selective),
            defaults,
        }
    }

    fn ledger(&self) -> Option<Arc<Ledger>> {
        let ledger = self.ledger.read().unwrap_or_else(PoisonError::into_inner);
        ledger.clone()
    }

    /// The endpoint is bound to another queue.
    fn bind(&self, (queue, is_selective): &(Arc<dyn CompletionQueue>, bool)) {
        let mut ledger = self.ledger.write().unwrap_or_else(PoisonError::into_inner);
        *ledger = HookedQueue::ledger(&**queue);
        self.is_selective.store(*is_selective, Ordering::Relaxed);
    }

    /// Whether only those operations are reported that ask for it.
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

/// What is kept of one endpoint.
#[derive(Debug)]
pub(crate) struct Watch {
    latency: Option<(LatencyRecorder, Arc<Totals>)>,
    calls: Option<CallRecorder>,
    tx: Side,
    rx: Side,
    names: Names,
}

/// What an endpoint is bound to, as far as it is watched.
#[derive(Debug)]
pub(crate) struct Bound {
    tx: Side,
    rx: Side,
    av: Option<Arc<dyn AddressVector>>,
}

impl Bound {
    pub(crate) fn of(info: &Info, bind: &Bindings) -> Self {
        Self {
            tx: Side::of(&bind.tx_cq, bind.tx_selective, info.tx_attr.op_flags),
            rx: Side::of(&bind.rx_cq, bind.rx_selective, info.rx_attr.op_flags),
            av: bind
                .av
                .as_ref()
                .map(Layered::<_, <HookLayers as Layers>::Av>::below),
        }
    }

    /// What receives are that endpoints share. They complete where the endpoints do
    /// ([`Kept::complete_at`]).
    pub(crate) fn shared(attr: &RxAttr) -> Self {
        let side = |ledger| Side {
            ledger: RwLock::new(ledger),
            is_selective: AtomicBool::new(false),
            defaults: attr.op_flags,
        };
        Self {
            tx: side(None),
            rx: side(Some(Arc::default())),
            av: None,
        }
    }
}

impl Watch {
    /// Watches an endpoint with a name, or receives that several share, if that is wanted.
    ///
    /// # Errors
    /// The system's when there is no memory, and those of what crashes write out.
    pub(crate) fn open(
        wanted: &Wanted,
        info: &Info,
        bound: Bound,
        name: &str,
    ) -> Result<Option<Arc<Self>>, Error> {
        if !wanted.is_any() {
            return Ok(None);
        }
        let provider = &info.fabric_attr.prov_name;
        let times = wanted.times.as_ref().map(|totals| {
            let latency = LatencyRecorder::open(provider, name)?;
            Ok::<_, Error>((latency, Arc::clone(totals)))
        });
        let calls = wanted.calls.then(|| {
            crash::install(&Settings::read(info.params())?)?;
            CallRecorder::open(provider, name)
        });
        Ok(Some(Arc::new(Self {
            latency: times.transpose()?,
            calls: calls.transpose()?,
            tx: bound.tx,
            rx: bound.rx,
            names: Names::new(bound.av, &wanted.names),
        })))
    }

    /// The open endpoint is bound to more.
    pub(crate) fn bind_late(&self, late: &LateBindings) {
        for (side, queue) in [(&self.tx, &late.tx_cq), (&self.rx, &late.rx_cq)] {
            if let Some(queue) = queue {
                side.bind(queue);
            }
        }
    }

    /// Carries a post out.
    pub(crate) fn around(
        self: &Arc<Self>,
        post: &Post<'_>,
        run: impl FnOnce() -> Result,
    ) -> Result {
        let begun = now();
        let number = self.calls.as_ref().map(|calls| {
            let peer = self.names.of(post.peer);
            let peer = if post.about.is_empty() {
                &*peer
            } else {
                &*post.about
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
        let entered = self.enter(post, begun);
        let answer = run();
        if let (Some(calls), Some(number)) = (&self.calls, number) {
            calls.end(number, answer);
        }
        if let (Err(_), Some((ledger, key))) = (answer, entered) {
            ledger.take_back(key, self, begun);
        }
        if let (Ok(()), Some(TimedOp::Inject), Some((latency, _))) =
            (answer, post.what, &self.latency)
        {
            latency.record(TimedOp::Inject, post.len, now() - begun);
        }
        answer
    }

    /// Before the post: its completion may be there before it returns.
    fn enter(
        self: &Arc<Self>,
        post: &Post<'_>,
        begun: u64,
    ) -> Option<(Arc<Ledger>, (TimedOp, Context))> {
        let what = post.what.filter(|what| *what != TimedOp::Inject)?;
        let is_receive = matches!(what, TimedOp::Receive | TimedOp::TaggedReceive);
        let side = if is_receive { &self.rx } else { &self.tx };
        let flags = side.flags(post.flags);
        if side.is_selective() && !flags.contains(OpFlags::COMPLETION) {
            return None;
        }
        let ledger = side.ledger()?;
        let is_multi = is_receive && flags.contains(OpFlags::MULTI_RECV);
        let looks = OpFlags::PEEK | OpFlags::CLAIM | OpFlags::DISCARD;
        let is_look = is_receive && flags.intersects(looks);
        let open = Open {
            watch: Arc::clone(self),
            begun,
            len: post.len,
            peer: post.peer,
            tag: post.tag,
            is_timed: !is_multi && !is_look,
            is_multi,
        };
        ledger.begin((what, post.context), open);
        Some((ledger, (what, post.context)))
    }

    /// The program has read the completion of an operation.
    pub(crate) fn over(
        &self,
        what: TimedOp,
        open: &Open,
        entry: &Entry,
        (now, outcome): (u64, Result),
    ) {
        let took = now.saturating_sub(open.begun);
        let (len, tag) = match what {
            TimedOp::Receive | TimedOp::TaggedReceive => (entry.len, entry.tag),
            _ => (open.len, open.tag),
        };
        if let Some((latency, _)) = &self.latency
            && open.is_timed
            && outcome.is_ok()
        {
            latency.record(what, len, took);
        }
        if let Some(calls) = &self.calls {
            let call = Call {
                name: what.name(),
                peer: &self.names.of(open.peer),
                len,
                tag,
                key: 0,
                context: entry.context.0,
            };
            calls.complete(&call, took, outcome);
        }
    }

    /// The endpoint is closed.
    pub(crate) fn close(self: &Arc<Self>) {
        for side in [&self.tx, &self.rx] {
            if let Some(ledger) = side.ledger() {
                ledger.forget(self);
            }
        }
        if let Some((latency, totals)) = &self.latency {
            totals.add(latency.histograms());
        }
    }
}

/// What is watched of shared receives, until their handle and all endpoints that take from them are
/// closed.
#[derive(Debug)]
pub(crate) struct Kept(pub(crate) Arc<Watch>);

impl Kept {
    /// Has the receives be found by completions of an endpoint that takes from them. If one of these
    /// endpoints reports only what asks for it, those that do not ask are not waited for.
    pub(crate) fn complete_at(&self, bound: &Bound) {
        let own = &self.0.rx;
        if bound.rx.is_selective() {
            own.is_selective.store(true, Ordering::Relaxed);
        }
        if let (Some(queue), Some(own)) = (bound.rx.ledger(), own.ledger()) {
            queue.borrow_from(&own);
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What peers are called. They are asked for once, until addresses are removed.
#[derive(Debug)]
struct Names {
    av: Option<Arc<dyn AddressVector>>,
    changes: Arc<AtomicU64>,
    known: Mutex<(u64, HashMap<FiAddr, Arc<str>>)>,
}

impl Names {
    fn new(av: Option<Arc<dyn AddressVector>>, changes: &Arc<AtomicU64>) -> Self {
        let changes = Arc::clone(changes);
        let known = Mutex::default();
        Self { av, changes, known }
    }

    fn of(&self, peer: FiAddr) -> Arc<str> {
        let Some(av) = self.av.as_ref().filter(|_| peer != FiAddr::UNSPEC) else {
            return Arc::default();
        };
        let changes = self.changes.load(Ordering::Relaxed);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != changes {
            *known = (changes, HashMap::new());
        }
        let name = || {
            av.lookup(peer)
                .map_or_else(|_| Arc::default(), |it| endpoint_name(&it).into())
        };
        Arc::clone(known.1.entry(peer).or_insert_with(name))
    }
}
