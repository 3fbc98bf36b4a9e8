//! Fabrics: the library's fabric, opened once however often it is asked for.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call is an object, its table and a slot of it"
)]

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::{Error, EventQueue, Info, PassiveEndpoint, Result, eq};
use selvedge_abi::{Fid, FidFabric};
use selvedge_kit::FabricId;

use crate::domain::Domain;
use crate::eq::Eq;
use crate::library::Library;
use crate::object::{Handle, call, done};
use crate::pep::Pep;

/// The fabrics that are open. Objects of the library work together only if they come from the same
/// object, ours if they come from the same fabric: a fabric is opened once, however often it is asked for.
static OPEN: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

/// A fabric of the library.
pub(crate) struct Fabric {
    inner: Arc<Inner>,
}

/// What keeps it open.
pub(crate) struct Inner {
    handle: Handle<FidFabric>,
    pub(crate) library: &'static Library,
    pub(crate) id: FabricId,
}

impl Fabric {
    pub(crate) fn open(library: &'static Library, info: &Info) -> Result<Self, Error> {
        let id = FabricId::of(info);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|inner| inner.strong_count() > 0);
        let mut found = open.iter().filter_map(Weak::upgrade);
        if let Some(inner) = found.find(|inner| inner.is(library, &id)) {
            return Ok(Self { inner });
        }
        let described = library.describe(info, ptr::null_mut())?;
        let handle = Handle::open(library, format_args!("{id:?}"), |out| {
            library.open_fabric(&described, out)
        })?;
        let inner = Arc::new(Inner {
            handle,
            library,
            id,
        });
        open.push(Arc::downgrade(&inner));
        Ok(Self { inner })
    }
}

impl Inner {
    /// Whether it is this fabric, opened by this process.
    fn is(&self, library: &'static Library, id: &FabricId) -> bool {
        ptr::eq(self.library, library) && self.id == *id && self.handle.at().is_ok()
    }

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
        self.inner.id.fmt(f)
    }
}
