//! `Setup`: what an endpoint was opened with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_kit::Ep;

use crate::provider::av::Av;
use crate::provider::config::Config;
use crate::provider::shared::Shared;

/// The parameters, bindings and domain of an endpoint: every part may read them.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) ep: Ep,
    pub(crate) av: Arc<Av>,
    /// What all endpoints of the domain have in common.
    pub(crate) shared: Arc<Shared>,
    /// How many incarnations of peers have ended, for a layer above the endpoint.
    pub(crate) ends: Arc<AtomicU64>,
}

impl Setup {
    /// Tells the layer that an incarnation of a peer has ended.
    pub(crate) fn count_end(&self) {
        if self.ep.has_layer() {
            self.ends.fetch_add(1, Ordering::Relaxed);
            self.ep.wake();
        }
    }
}
