//! `Setup`: the parameters, bindings and domain of an endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_kit::Ep;

use crate::provider::av::Av;
use crate::provider::config::Config;
use crate::provider::shared::Shared;

/// The parameters, bindings and domain of an endpoint, which all parts of the endpoint may read.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    /// State shared by all endpoints of the domain.
    pub(crate) shared: Arc<Shared>,
    /// The number of ended incarnations of peers, for a collective layer above the endpoint.
    pub(crate) ended_incarnations: Arc<AtomicU64>,
}

impl Setup {
    /// Counts an ended incarnation of a peer, and wakes the collective layer.
    pub(crate) fn count_ended_incarnation(&self) {
        if self.ep.has_layer() {
            self.ended_incarnations.fetch_add(1, Ordering::Relaxed);
            self.ep.wake();
        }
    }
}
