//! The records that the hooks of a fabric request, and the totals of its closed endpoints.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge_kit::telemetry::latency::Histogram;

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
    pub(super) fn add(&self, histograms: Vec<Histogram>) {
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
