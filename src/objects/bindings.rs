//! `Bindings`: the queues, counters and address vector that an endpoint is opened with.

use std::sync::Arc;

use crate::{AddressVector, CompletionQueue, Counters, EventQueue, SharedReceives};

/// The objects that an endpoint is bound to. An endpoint is opened with all objects that it needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bindings {
    /// The queue for completions of sends and other local operations.
    pub tx_cq: Arc<dyn CompletionQueue>,
    /// Whether `tx_cq` reports only operations with [`crate::OpFlags::COMPLETION`]
    /// (`FI_SELECTIVE_COMPLETION`).
    pub tx_selective: bool,
    /// The queue for completions of receives.
    pub rx_cq: Arc<dyn CompletionQueue>,
    /// Whether `rx_cq` reports only operations with [`crate::OpFlags::COMPLETION`].
    pub rx_selective: bool,
    /// The address vector; required by unconnected endpoints.
    pub av: Option<Arc<dyn AddressVector>>,
    /// The queue for connection events.
    pub eq: Option<Arc<dyn EventQueue>>,
    /// Counters, by the operations that they count.
    pub cntrs: Counters,
    /// A shared receive context. Receives that are posted to the endpoint itself are matched first.
    pub srx: Option<Arc<dyn SharedReceives>>,
}

impl Bindings {
    /// Creates the bindings of an unconnected endpoint: one queue for both directions, and an
    /// address vector.
    pub fn new(cq: Arc<dyn CompletionQueue>, av: Arc<dyn AddressVector>) -> Self {
        Self {
            tx_cq: Arc::clone(&cq),
            tx_selective: false,
            rx_cq: cq,
            rx_selective: false,
            av: Some(av),
            eq: None,
            cntrs: Counters::default(),
            srx: None,
        }
    }
}
