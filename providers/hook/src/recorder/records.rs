//! `Records`: the operation times and the last calls of one endpoint, which `fi_top` reads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::cq::Entry;
use selvedge::{AddressVector, Error, FiAddr, Info, Result};
use selvedge_kit::telemetry::calls::{Call, CallRecorder};
use selvedge_kit::telemetry::latency::LatencyRecorder;
use selvedge_kit::telemetry::{Settings, TimedOp, crash, endpoint_name, now};

use super::config::{RecorderConfig, Totals};
use super::post::Post;

/// The records of one endpoint.
#[derive(Debug)]
pub(super) struct Records {
    latency: Option<(LatencyRecorder, Arc<Totals>)>,
    calls: Option<CallRecorder>,
    names: Names,
}

/// A post of which the records need the completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPost {
    /// The time of the post, in nanoseconds of [`now`].
    pub(super) started: u64,
    pub(super) len: usize,
    pub(super) peer: FiAddr,
    pub(super) tag: u64,
    /// Whether the time until the completion is recorded: not for a peek, or for a multi-receive
    /// buffer.
    pub(super) is_timed: bool,
}

impl Records {
    /// Opens the records; `None` if no hook requests them.
    ///
    /// # Errors
    /// The system's error if there is no memory; the errors of [`crash::install`].
    pub(super) fn open(
        recorder_config: &RecorderConfig,
        info: &Info,
        av: Option<Arc<dyn AddressVector>>,
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
            names: Names::new(av, &recorder_config.address_removals),
        })))
    }

    /// Records that a call begins. Returns the number of its record.
    pub(super) fn begin_call(&self, post: &Post<'_>) -> Option<u64> {
        self.calls.as_ref().map(|calls| {
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
        })
    }

    /// Records that a call has returned. An injected operation is complete then.
    pub(super) fn end_call(
        &self,
        post: &Post<'_>,
        number: Option<u64>,
        started: u64,
        result: Result,
    ) {
        if let (Some(calls), Some(number)) = (&self.calls, number) {
            calls.end(number, result);
        }
        if let (Ok(()), Some(TimedOp::Inject), Some((latency, _))) =
            (result, post.op_kind, &self.latency)
        {
            latency.record(TimedOp::Inject, post.len, now() - started);
        }
    }

    /// Records that the application has read the completion of an operation.
    pub(super) fn complete(
        &self,
        op_kind: TimedOp,
        open: &OpenPost,
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

    /// Adds the times to the totals.
    pub(super) fn close(&self) {
        if let Some((latency, totals)) = &self.latency {
            totals.add(latency.histograms());
        }
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
