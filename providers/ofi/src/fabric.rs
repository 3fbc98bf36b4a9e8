//! Fabrics, and what they know of what was opened from them.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call is an object, its table and a slot of it"
)]

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::{Error, EventQueue, Info, PassiveEndpoint, Result, eq};
use selvedge_abi::{Fid, FidFabric};

use crate::domain::Domain;
use crate::endpoint::Endpoint;
use crate::eq::Eq;
use crate::library::{Library, Theirs};
use crate::object::{Handle, call, done};
use crate::pep::Pep;

/// A fabric of the library.
pub(crate) struct Fabric {
    inner: Arc<Inner>,
}

/// What keeps it open.
pub(crate) struct Inner {
    handle: Handle<FidFabric>,
    pub(crate) library: &'static Library,
    name: String,
    open: Mutex<Open>,
}

/// What events may be about, by the library's handles.
#[derive(Default)]
struct Open {
    endpoints: HashMap<usize, Weak<Endpoint>>,
    peps: HashMap<usize, Weak<Pep>>,
    /// Requests for connections that nobody has accepted or rejected, with what they came with.
    requests: HashMap<u64, Request>,
}

/// A request for a connection.
pub(crate) struct Request {
    pub(crate) handle: *mut Fid,
    /// Keeps what the library may look at while the request is open.
    _info: Theirs,
}

// SAFETY: the handle is only handed on to the library.
unsafe impl Send for Request {}

impl Fabric {
    pub(crate) fn open(library: &'static Library, info: &Info) -> Result<Self, Error> {
        let name = format!(
            "fabric {:?} of {}",
            info.fabric_attr.name, info.fabric_attr.prov_name
        );
        let described = library.describe(info, ptr::null_mut())?;
        let handle = Handle::open(library, &name, |out| library.open_fabric(&described, out))?;
        Ok(Self {
            inner: Arc::new(Inner {
                handle,
                library,
                name,
                open: Mutex::default(),
            }),
        })
    }
}

impl Inner {
    /// Where it is, for opening something from it.
    pub(crate) fn parent(&self) -> Result<*mut FidFabric, Error> {
        self.handle.parent()
    }

    /// Whether it is safe to sleep until an object's descriptor is ready.
    pub(crate) fn try_wait(&self, fid: *mut Fid) -> Result {
        let (fabric, mut fids) = (self.handle.at()?, [fid]);
        // SAFETY: both objects are open, and the list lives during the call.
        done(unsafe { call!(fabric, (*fabric).ops, trywait, fids.as_mut_ptr(), 1) })
    }

    pub(crate) fn know_endpoint(&self, name: usize, endpoint: &Arc<Endpoint>) {
        self.lock().endpoints.insert(name, Arc::downgrade(endpoint));
    }

    pub(crate) fn forget_endpoint(&self, name: usize) {
        self.lock().endpoints.remove(&name);
    }

    pub(crate) fn know_pep(&self, name: usize, pep: &Arc<Pep>) {
        self.lock().peps.insert(name, Arc::downgrade(pep));
    }

    pub(crate) fn forget_pep(&self, name: usize) {
        self.lock().peps.remove(&name);
    }

    pub(crate) fn endpoint(&self, fid: *mut Fid) -> Option<Arc<dyn selvedge::Endpoint>> {
        let endpoint = self.lock().endpoints.get(&fid.addr())?.upgrade()?;
        Some(endpoint)
    }

    pub(crate) fn pep(&self, fid: *mut Fid) -> Option<Arc<dyn PassiveEndpoint>> {
        let pep = self.lock().peps.get(&fid.addr())?.upgrade()?;
        Some(pep)
    }

    /// Keeps a request until it is answered.
    pub(crate) fn keep_request(&self, name: u64, handle: *mut Fid, info: Theirs) {
        let request = Request {
            handle,
            _info: info,
        };
        self.lock().requests.insert(name, request);
    }

    /// A request that is about to be answered.
    pub(crate) fn take_request(&self, name: u64) -> Option<Request> {
        self.lock().requests.remove(&name)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        Ok(Arc::new(Domain::open(&self.inner, info)?))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(Arc::new(Eq::open(&self.inner, attr)?))
    }

    fn passive_endpoint(
        &self,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        Ok(Pep::open(&self.inner, info, eq)?)
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.name)
    }
}
