//! Recorders: they record the operations and the last calls of one endpoint for `perf` and
//! `flight`.
//!
//! An operation's time lasts from the post until the application reads the completion.

mod config;
mod open_ops;
mod post;
mod records;

pub(crate) use config::{RecorderConfig, Totals};
pub(crate) use open_ops::OpenOps;
pub(crate) use post::Post;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use selvedge::info::RxAttr;
use selvedge::{
    AddressVector, Bindings, CompletionQueue, Context, Error, Info, LateBindings, OpFlags, Result,
};
use selvedge_kit::layer::{Layered, Layers};
use selvedge_kit::telemetry::{TimedOp, now};

use self::open_ops::OpenOp;
use self::records::{OpenPost, Records};
use crate::layers::{HookLayers, HookPoint, HookedQueue};

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
        if flags.contains(OpFlags::DEFAULT) {
            flags | self.defaults
        } else {
            flags
        }
    }
}

/// The recorder of one endpoint.
#[derive(Debug)]
pub(crate) struct Recorder {
    records: Arc<Records>,
    tx: Direction,
    rx: Direction,
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
    /// As [`Records::open`].
    pub(crate) fn open(
        recorder_config: &RecorderConfig,
        info: &Info,
        bound: RecordedBindings,
        name: &str,
    ) -> Result<Option<Self>, Error> {
        let RecordedBindings { tx, rx, av } = bound;
        let records = Records::open(recorder_config, info, av, name)?;
        Ok(records.map(|records| Self { records, tx, rx }))
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
    fn record_call(&self, post: &Post<'_>, run: impl FnOnce() -> Result) -> Result {
        let started = now();
        let number = self.records.begin_call(post);
        let registered = self.register(post, started);
        let result = run();
        self.records.end_call(post, number, started, result);
        if let (Err(_), Some((open_ops, key))) = (result, registered) {
            open_ops.remove_failed(key, &self.records, started);
        }
        result
    }

    /// Registers an operation before its post, because the completion may be read before the post
    /// returns.
    fn register(
        &self,
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
            records: Arc::clone(&self.records),
            post: OpenPost {
                started,
                len: post.len,
                peer: post.peer,
                tag: post.tag,
                is_timed: !is_multi && !is_peek,
            },
            is_multi,
        };
        open_ops.begin((op_kind, post.context), open);
        Some((open_ops, (op_kind, post.context)))
    }

    /// Closes the recorder.
    pub(crate) fn close(&self) {
        for direction in [&self.tx, &self.rx] {
            if let Some(open_ops) = direction.open_ops() {
                open_ops.remove_endpoint(&self.records);
            }
        }
        self.records.close();
    }
}

/// The recorder of shared receives. The recorder is closed after the receives' handle and all
/// endpoints that use the receives.
#[derive(Debug)]
pub(crate) struct SharedRecorder(pub(crate) Recorder);

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

/// Passes a post through the hooks, and records it if there is a recorder.
pub(crate) fn pass(
    post: &Post<'_>,
    point: &HookPoint,
    recorder: Option<&Recorder>,
    run: impl FnOnce() -> Result,
) -> Result {
    let call = || point.call_unit(post.name, &|args| post.write_args(args), run);
    match recorder {
        None => call(),
        Some(recorder) => recorder.record_call(post, call),
    }
}
