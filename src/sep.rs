//! Scalable endpoints: fi_scalable_ep, fi_endpoint(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Address, Bindings, Endpoint, Error, Info, Result};

/// One address with several endpoints behind it, its *contexts*, which threads use without each
/// other: every context has queues of its own, and nothing in common with the others but the address.
///
/// Opened by [`crate::Domain::scalable_endpoint`]. A peer that has inserted the address in a vector
/// with [`crate::av::Attr::rx_ctx_bits`] reaches context `i` at [`crate::FiAddr::rx_addr`], and what
/// context `i` sends is from there: a completion names that as the source, and a receive from there
/// takes what that context sends. The address alone is context 0's.
///
/// A transmit and a receive context of libfabric's (`fi_tx_context`, `fi_rx_context`) with one index
/// are one context here, with both directions.
///
/// Handles are dropped in any order. A context whose last handle was dropped may be opened again.
pub trait ScalableEndpoint: Any + fmt::Debug + Send + Sync {
    /// The address that peers insert (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] where it has none.
    fn address(&self) -> Result<Address>;

    /// Opens a context, bound and enabled. `info` is what an endpoint of the domain is described
    /// by; its address is the scalable endpoint's.
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] when there are not so many contexts, with their number;
    /// [`crate::Errno::Busy`] while the context is open; those of [`crate::Domain::endpoint`].
    fn context(
        &self,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error>;
}
