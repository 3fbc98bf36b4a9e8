//! `FabricState`: a fabric of the library, which its objects keep open.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::{Error, Info, Result};
use selvedge_abi::{Fid, FidFabric};
use selvedge_kit::FabricId;

use crate::library::Library;
use crate::object::{Handle, call, to_result};

/// The open fabrics. The library's objects work together only if they come from one fabric object.
/// Selvedge's objects work together if their fabrics have the same [`FabricId`]. So the process
/// opens each fabric once and shares it.
static OPEN: Mutex<Vec<Weak<FabricState>>> = Mutex::new(Vec::new());

/// The shared part of a fabric. The fabric stays open until all objects of it are dropped.
pub(crate) struct FabricState {
    handle: Handle<FidFabric>,
    pub(crate) library: &'static Library,
    pub(crate) id: FabricId,
}

impl FabricState {
    /// Opens a fabric, or returns the open one.
    pub(super) fn open(library: &'static Library, info: &Info) -> Result<Arc<Self>, Error> {
        let id = FabricId::of(info);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|inner| inner.strong_count() > 0);
        let mut found = open.iter().filter_map(Weak::upgrade);
        if let Some(inner) = found.find(|inner| inner.is(library, &id)) {
            return Ok(inner);
        }
        let info_for_library = library.library_info(info, ptr::null_mut())?;
        let handle = Handle::open(library, format_args!("{id:?}"), |out| {
            library.open_fabric(&info_for_library, out)
        })?;
        let inner = Arc::new(Self {
            handle,
            library,
            id,
        });
        open.push(Arc::downgrade(&inner));
        Ok(inner)
    }

    /// Returns whether this is fabric `id` of `library`, opened by this process: not by its parent
    /// before a fork.
    fn is(&self, library: &'static Library, id: &FabricId) -> bool {
        ptr::eq(self.library, library) && self.id == *id && self.handle.ptr().is_ok()
    }

    /// Returns the pointer to the fabric, for a call that returns [`Error`].
    ///
    /// # Errors
    /// As [`Handle::ptr_or_error`].
    pub(crate) fn ptr_or_error(&self) -> Result<*mut FidFabric, Error> {
        self.handle.ptr_or_error()
    }

    /// Checks whether a thread may block on an object's descriptor (fi_trywait(3)).
    pub(crate) fn try_wait(&self, fid: *mut Fid) -> Result {
        let (fabric, mut fids) = (self.handle.ptr()?, [fid]);
        // SAFETY: both objects are open, and the list lives during the call.
        to_result(unsafe { call!(fabric, (*fabric).ops, trywait, fids.as_mut_ptr(), 1) })
    }
}
