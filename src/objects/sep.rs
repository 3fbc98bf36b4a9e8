//! Scalable endpoints: fi_scalable_ep, fi_endpoint(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Address, Bindings, Endpoint, Error, Info, Result};

/// An address with several endpoints, which are called its *contexts*. Each context has its own
/// queues and shares only the address with the others, so that threads use contexts independently.
///
/// [`crate::Domain::scalable_endpoint`] opens a scalable endpoint. A peer inserts the address into
/// a vector with [`crate::av::Attr::rx_ctx_bits`], and addresses context `i` by
/// [`crate::FiAddr::rx_addr`]. The same [`crate::FiAddr`] is the source of messages from context
/// `i`, in completions and in directed receives. The address without context bits is that of
/// context 0.
///
/// A context has both directions: context `i` corresponds to libfabric's transmit context `i` and
/// receive context `i` (`fi_tx_context`, `fi_rx_context`).
///
/// Handles may be dropped in any order. A context may be opened again after its last handle was
/// dropped.
pub trait ScalableEndpoint: Any + fmt::Debug + Send + Sync {
    /// Returns the address that peers insert (fi_getname(3)).
    ///
    /// # Errors
    /// [`crate::Errno::AddrNotAvail`] for a scalable endpoint without an address.
    fn address(&self) -> Result<Address>;

    /// Opens a context, bound and enabled. `info` describes the context as it would describe an
    /// endpoint of the domain, except that the address in `info` is not used: the context has the
    /// address of the scalable endpoint.
    ///
    /// # Errors
    /// [`crate::Errno::Inval`] for an index beyond the number of contexts; the error text has the
    /// index, `tx_ctx_cnt` and `rx_ctx_cnt`. [`crate::Errno::Busy`] while the context is open. The
    /// errors of [`crate::Domain::endpoint`].
    fn context(
        &self,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error>;
}
