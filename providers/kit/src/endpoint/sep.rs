//! Scalable endpoints, fi_endpoint(3): a group of a provider's endpoints under one address. The
//! provider defines the addresses of the contexts and how peers reach them.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::info::EpAttr;
use selvedge::{Address, Bindings, Endpoint, Errno, Error, Info, Result, ScalableEndpoint};

/// The largest number of contexts of a scalable endpoint.
pub const CONTEXTS_MAX: usize = 64;

/// The provider's function that opens the context with an index.
type Opener =
    dyn Fn(usize, &Info, Bindings, ContextSlot) -> Result<Arc<dyn Endpoint>, Error> + Send + Sync;

/// Marks the slot of a context as in use, as long as the endpoint of the context holds it.
#[derive(Debug)]
pub struct ContextSlot(
    #[expect(dead_code, reason = "its reference count is the information")] Arc<()>,
);

/// A scalable endpoint over ordinary endpoints.
pub struct Scalable {
    address: Address,
    tx_ctx_cnt: usize,
    rx_ctx_cnt: usize,
    open: Box<Opener>,
    /// The slots, by index: a live handle means that the context is open.
    slots: Mutex<Vec<Weak<()>>>,
}

/// The number of contexts: the larger of `tx_ctx_cnt` and `rx_ctx_cnt`, and at least 1.
///
/// # Errors
/// [`Errno::Inval`] for more than [`CONTEXTS_MAX`].
pub fn contexts(attr: &EpAttr) -> Result<usize, Error> {
    for (name, count) in [
        ("tx_ctx_cnt", attr.tx_ctx_cnt),
        ("rx_ctx_cnt", attr.rx_ctx_cnt),
    ] {
        if count > CONTEXTS_MAX {
            let message =
                format!("{name} of a scalable endpoint: requested {count}, has {CONTEXTS_MAX}");
            return Err(Error::new(Errno::Inval, message));
        }
    }
    Ok(attr.tx_ctx_cnt.max(attr.rx_ctx_cnt).max(1))
}

impl Scalable {
    /// Makes a scalable endpoint at `address`. `open` opens a context by its index, which is below
    /// [`contexts`]. Only one caller at a time opens an index.
    ///
    /// # Errors
    /// As [`contexts`].
    pub fn open(
        info: &Info,
        address: Address,
        open: impl Fn(usize, &Info, Bindings, ContextSlot) -> Result<Arc<dyn Endpoint>, Error>
        + Send
        + Sync
        + 'static,
    ) -> Result<Arc<Self>, Error> {
        let count = contexts(&info.ep_attr)?;
        Ok(Arc::new(Self {
            address,
            tx_ctx_cnt: info.ep_attr.tx_ctx_cnt,
            rx_ctx_cnt: info.ep_attr.rx_ctx_cnt,
            open: Box::new(open),
            slots: Mutex::new((0..count).map(|_| Weak::new()).collect()),
        }))
    }
}

impl ScalableEndpoint for Scalable {
    fn address(&self) -> Result<Address> {
        Ok(self.address.clone())
    }

    fn context(
        &self,
        index: usize,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<dyn Endpoint>, Error> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.get_mut(index).ok_or_else(|| {
            let (tx, rx) = (self.tx_ctx_cnt, self.rx_ctx_cnt);
            let message =
                format!("context {index} of {self:?}: tx_ctx_cnt is {tx}, rx_ctx_cnt {rx}");
            Error::new(Errno::Inval, message)
        })?;
        if slot.strong_count() > 0 {
            let message = format!("context {index} of {self:?} is open; close it first");
            return Err(Error::new(Errno::Busy, message));
        }
        let token = Arc::new(());
        *slot = Arc::downgrade(&token);
        (self.open)(index, info, bind, ContextSlot(token)).map_err(|error| {
            let message = format!("context {index} of {self:?}: {}", error.message());
            Error::new(error.errno(), message).because(error)
        })
    }
}

impl fmt::Debug for Scalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scalable endpoint {}", self.address)
    }
}
