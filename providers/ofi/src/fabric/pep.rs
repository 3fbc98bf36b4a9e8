//! Passive endpoints.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::fmt;
use std::ptr;
use std::sync::Arc;

use selvedge::{AddrFormat, Address, Errno, Error, EventQueue, Info, PassiveEndpoint, Result};
use selvedge_abi::FidPep;

use super::eq::bound_eq;
use super::state::FabricState;
use crate::object::{Handle, call, read_address, to_result};
use crate::open_objects;

/// A passive endpoint of the library.
pub(crate) struct Pep {
    handle: Handle<FidPep>,
    addr_format: AddrFormat,
    fabric: Arc<FabricState>,
    /// The queue that the endpoint reports connection requests to. Closed after `handle`, as the
    /// later field.
    _eq: Arc<dyn EventQueue>,
}

impl Pep {
    pub(crate) fn open(
        fabric: &Arc<FabricState>,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<Self>, Error> {
        let queue = bound_eq(&eq, fabric, &"a passive endpoint")?;
        let info_for_library = fabric.library.library_info(info, ptr::null_mut())?;
        let fid = fabric.ptr_or_error()?;
        let handle = Handle::open(fabric.library, "a passive endpoint", |out| {
            let (info, none) = (info_for_library.first(), ptr::null_mut());
            // SAFETY: the fabric is open, and the info has the library's layout.
            unsafe { call!(fid, (*fid).ops, passive_ep, info, out, none) }
        })?;
        let (fid, other) = (handle.fid_or_error()?, queue.fid()?);
        // SAFETY: both objects are open.
        let code = unsafe { call!(fid, (*fid).ops, bind, other, 0) };
        if to_result(code).is_err() {
            return Err(fabric
                .library
                .call_error("binding a passive endpoint", code));
        }
        let pep = Arc::new(Self {
            handle,
            addr_format: info.addr_format,
            fabric: Arc::clone(fabric),
            _eq: eq,
        });
        let weak = Arc::downgrade(&pep);
        open_objects::register_pep(pep.handle.id(), weak, info.clone());
        Ok(pep)
    }
}

impl PassiveEndpoint for Pep {
    fn listen(&self) -> Result {
        let pep = self.handle.ptr()?;
        // SAFETY: the endpoint is open.
        to_result(unsafe { call!(pep, (*pep).cm, listen) })
    }

    fn address(&self) -> Result<Address> {
        let pep = self.handle.ptr()?;
        read_address(self.addr_format, |out_ptr, len| {
            // SAFETY: the endpoint is open, and `out_ptr` has room for the bytes that `len` states.
            unsafe { call!(pep, (*pep).cm, getname, out_ptr, len) }
        })
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        let request = open_objects::take_request(handle).ok_or(Errno::Inval)?;
        let pep = self.handle.ptr()?;
        let (from, len) = (data.as_ptr().cast(), data.len());
        // SAFETY: the endpoint is open. The request is the library's and has not been answered.
        to_result(unsafe { call!(pep, (*pep).cm, reject, request.handle, from, len) })
    }
}

impl Drop for Pep {
    fn drop(&mut self) {
        open_objects::unregister_pep(self.handle.id());
    }
}

impl fmt::Debug for Pep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "passive endpoint of {:?}", self.fabric.library)
    }
}
