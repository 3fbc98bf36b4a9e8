//! Passive endpoints.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call is an object, its table and a slot of it"
)]

use std::any::Any;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use selvedge::{Address, Errno, Error, EventQueue, Info, PassiveEndpoint, Result};
use selvedge_abi::FidPep;

use crate::cm::name_of;
use crate::eq::Eq;
use crate::fabric;
use crate::object::{Handle, call, done};
use crate::opened;

/// A passive endpoint of the library.
pub(crate) struct Pep {
    handle: Handle<FidPep>,
    /// What it was opened with, and what endpoints for its requests are opened with.
    info: Info,
    fabric: Arc<fabric::Inner>,
    /// Closed after the endpoint that tells it of requests.
    _eq: Arc<dyn EventQueue>,
}

impl Pep {
    pub(crate) fn open(
        fabric: &Arc<fabric::Inner>,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<Self>, Error> {
        let queue = bound_eq(&eq, fabric, &"a passive endpoint")?;
        let described = fabric.library.describe(info, ptr::null_mut())?;
        let at = fabric.parent()?;
        let handle = Handle::open(fabric.library, "a passive endpoint", |out| {
            let (info, none) = (described.first(), ptr::null_mut());
            // SAFETY: the fabric is open, the description is the library's.
            unsafe { call!(at, (*at).ops, passive_ep, info, out, none) }
        })?;
        let (fid, other) = (handle.own_fid()?, queue.fid()?);
        // SAFETY: both objects are open.
        let answer = unsafe { call!(fid, (*fid).ops, bind, other, 0) };
        if done(answer).is_err() {
            return Err(fabric.library.trouble("binding a passive endpoint", answer));
        }
        let pep = Arc::new(Self {
            handle,
            info: info.clone(),
            fabric: Arc::clone(fabric),
            _eq: eq,
        });
        opened::know_pep(pep.handle.name(), &pep);
        Ok(pep)
    }
}

/// An event queue, as the library's own of a fabric; `user` is what is bound to it.
///
/// # Errors
/// [`Errno::Inval`] for one of another fabric, with both.
pub(crate) fn bound_eq(
    eq: &Arc<dyn EventQueue>,
    fabric: &Arc<fabric::Inner>,
    user: &dyn fmt::Debug,
) -> Result<Arc<Eq>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn EventQueue>::clone(eq);
    let own = any.downcast::<Eq>().ok();
    own.filter(|own| own.is_of(fabric)).ok_or_else(|| {
        let id = &fabric.id;
        let what = format!(
            "{user:?} ({id:?}): the event queue is of another fabric ({eq:?}); open both from one"
        );
        Error::new(Errno::Inval, what)
    })
}

impl Pep {
    /// The description of a request that came: between these addresses, by this handle.
    pub(crate) fn request(&self, given: Info, handle: u64) -> Info {
        let mut info = self.info.clone();
        (info.src_addr, info.dest_addr) = (given.src_addr, given.dest_addr);
        info.handle = handle;
        info
    }
}

impl PassiveEndpoint for Pep {
    fn listen(&self) -> Result {
        let at = self.handle.at()?;
        // SAFETY: the endpoint is open.
        done(unsafe { call!(at, (*at).cm, listen) })
    }

    fn address(&self) -> Result<Address> {
        let at = self.handle.at()?;
        name_of(self.info.addr_format, |place, len| {
            // SAFETY: the endpoint is open, and there is room for as many bytes.
            unsafe { call!(at, (*at).cm, getname, place, len) }
        })
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        let request = opened::take_request(handle).ok_or(Errno::Inval)?;
        let at = self.handle.at()?;
        let (from, len) = (data.as_ptr().cast(), data.len());
        // SAFETY: the endpoint is open, the request is one of the library's that was not answered.
        done(unsafe { call!(at, (*at).cm, reject, request.handle, from, len) })
    }
}

impl Drop for Pep {
    fn drop(&mut self) {
        opened::forget_pep(self.handle.name());
    }
}

impl fmt::Debug for Pep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "passive endpoint of {:?}", self.fabric.library)
    }
}
