//! Scalable endpoints: a group of a provider's endpoints under one address. What the contexts are
//! called, and how one reaches them, is the provider's.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::info::EpAttr;
use selvedge::{Address, Bindings, Endpoint, Errno, Error, Info, Result, ScalableEndpoint};

/// The most contexts of a scalable endpoint.
pub const CONTEXTS_MAX: usize = 64;

/// Opens the context with a number.
type Opener =
    dyn Fn(usize, &Info, Bindings, Seat) -> Result<Arc<dyn Endpoint>, Error> + Send + Sync;

/// What the endpoint of a context keeps, so that it is known to be open.
#[derive(Debug)]
pub struct Seat(#[expect(dead_code, reason = "it counts by being there")] Arc<()>);

/// The ready-made scalable endpoint.
pub struct Scalable {
    address: Address,
    tx_ctx_cnt: usize,
    rx_ctx_cnt: usize,
    open: Box<Opener>,
    /// Those that are open, by number.
    seats: Mutex<Vec<Weak<()>>>,
}

/// How many contexts a scalable endpoint has: as many as the direction with more of them.
///
/// # Errors
/// [`Errno::Inval`] for more than there can be.
pub fn contexts(attr: &EpAttr) -> Result<usize, Error> {
    for (name, count) in [
        ("tx_ctx_cnt", attr.tx_ctx_cnt),
        ("rx_ctx_cnt", attr.rx_ctx_cnt),
    ] {
        if count > CONTEXTS_MAX {
            let what =
                format!("{name} of a scalable endpoint: asked for {count}, has {CONTEXTS_MAX}");
            return Err(Error::new(Errno::Inval, what));
        }
    }
    Ok(attr.tx_ctx_cnt.max(attr.rx_ctx_cnt).max(1))
}

impl Scalable {
    /// One at `address`, whose contexts `open` opens: any number below [`contexts`], one at a time.
    ///
    /// # Errors
    /// As [`contexts`].
    pub fn open(
        info: &Info,
        address: Address,
        open: impl Fn(usize, &Info, Bindings, Seat) -> Result<Arc<dyn Endpoint>, Error>
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
            seats: Mutex::new((0..count).map(|_| Weak::new()).collect()),
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
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let place = seats.get_mut(index).ok_or_else(|| {
            let (tx, rx) = (self.tx_ctx_cnt, self.rx_ctx_cnt);
            let what = format!("context {index} of {self:?}: tx_ctx_cnt is {tx}, rx_ctx_cnt {rx}");
            Error::new(Errno::Inval, what)
        })?;
        if place.strong_count() > 0 {
            let what = format!("context {index} of {self:?} is open");
            return Err(Error::new(Errno::Busy, what));
        }
        let seat = Arc::new(());
        *place = Arc::downgrade(&seat);
        (self.open)(index, info, bind, Seat(seat)).map_err(|error| {
            let what = format!("context {index} of {self:?}: {}", error.message());
            Error::new(error.errno(), what).because(error)
        })
    }
}

impl fmt::Debug for Scalable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scalable endpoint {}", self.address)
    }
}
