//! Counters: `struct fid_cntr`.

#![expect(unsafe_code, reason = "functions of C")]

use std::sync::Arc;

use selvedge::cntr::{Attr, Events};
use selvedge::poll::Member;
use selvedge::{Counter, Domain, Errno, Result};
use selvedge_abi as abi;
use selvedge_abi::{FidCntr, Ops, OpsCntr, fclass};

use super::wait::{self, WaitObject};
use crate::object::{self, Table, class};
use crate::pointer::prefix;
use crate::status::{guarded_infallible, guarded_unit, log_error};

/// The object behind the handle of a counter.
pub(crate) struct Cntr {
    pub(crate) inner: Arc<dyn Counter>,
    wait_obj: WaitObject,
}

class! {
    Cntr, FidCntr, FID, |_| fclass::CNTR;
    tables |_| ops: &CNTR
}

static FID: Table<Ops, Cntr> = object::ops::<Cntr>().control(|cntr, command, arg| {
    // SAFETY: the C caller follows fi_control(3).
    guarded_unit(|| unsafe { cntr.wait_obj.control(command, arg, cntr.inner.wait_fd()) })
});
static CNTR: Table<OpsCntr, Cntr> = Table::<OpsCntr, Cntr>::empty()
    // fi_cntr_read(3)
    .read(|cntr| cntr.inner.read())
    // fi_cntr_readerr(3)
    .readerr(|cntr| cntr.inner.read_err())
    // fi_cntr_add(3)
    .add(|cntr, value| guarded_infallible(|| cntr.inner.add(value)))
    // fi_cntr_set(3)
    .set(|cntr, value| guarded_infallible(|| cntr.inner.set(value)))
    // fi_cntr_adderr(3)
    .adderr(|cntr, value| guarded_infallible(|| cntr.inner.add_err(value)))
    // fi_cntr_seterr(3)
    .seterr(|cntr, value| guarded_infallible(|| cntr.inner.set_err(value)))
    // fi_cntr_wait(3)
    .wait(|cntr, threshold, timeout| {
        guarded_unit(|| cntr.inner.wait(threshold, wait::timeout(timeout)))
    });

/// Bytes of `struct fi_cntr_attr` before the member for accelerators, which every version has.
const ATTR_1_0: usize = 24;

impl Cntr {
    /// Opens a counter.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a wait object that is not supported; [`Errno::Inval`] for unknown
    /// events; the provider's.
    ///
    /// # Safety
    /// `attr` is NULL or points to attributes.
    pub(crate) unsafe fn open(domain: &dyn Domain, attr: *const abi::CntrAttr) -> Result<Self> {
        let (mut request, mut set) = (Attr::default(), None);
        if !attr.is_null() {
            // SAFETY: passed on from the caller: every API version has these bytes.
            let attr = unsafe { prefix(attr, ATTR_1_0) }?;
            // SAFETY: passed on from the caller.
            (request.wait_obj, set) = unsafe { wait::object(attr.wait_obj, attr.wait_set) }?;
            request.events = match attr.events {
                0 => Events::Comp,
                1 => Events::Bytes,
                _ => return Err(Errno::Inval),
            };
        }
        let inner = domain.cntr(&request).map_err(|error| log_error(&error))?;
        let wait_obj = WaitObject::new(request.wait_obj, set, Member::Cntr(Arc::clone(&inner)))?;
        Ok(Self { inner, wait_obj })
    }
}
