//! Shared contexts: `fi_srx_context`, whose handle is a `struct fid_ep` that receives are posted
//! to, and `fi_stx_context`, `struct fid_stx`.
//!
//! A shared transmit context is only a handle: endpoints have no transmit resources that could be
//! shared.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_int;
use std::sync::Arc;

use selvedge::info::RxAttr;
use selvedge::{Caps, Domain, Errno, OpFlags, Result, SharedReceives};
use selvedge_abi as abi;
use selvedge_abi::{FidEp, FidStx, Ops, OpsEp, OpsMsg, OpsTagged, fclass, number};

use super::post::message::{Message, Operation, Post};
use super::post::{lists, msg, tagged};
use crate::context;
use crate::object::{self, Table, class};
use crate::pointer::required;
use crate::status::{guarded_count, guarded_unit, log_error};

/// The object behind the handle of a shared receive context.
pub(crate) struct Srx(pub(super) Arc<dyn SharedReceives>);

/// The object behind the handle of a shared transmit context.
pub(crate) struct Stx;

class! {
    Srx, FidEp, FID, |_| fclass::SRX_CTX;
    tables |_| ops: &EP, msg: &MSG, tagged: &TAGGED
}
class! {
    Stx, FidStx, STX_FID, |_| fclass::STX_CTX
}

static FID: Table<Ops, Srx> = object::ops::<Srx>().control(|_, command, _arg| control(command));
static STX_FID: Table<Ops, Stx> = object::ops::<Stx>().control(|_, command, _arg| control(command));
static EP: Table<OpsEp, Srx> = Table::<OpsEp, Srx>::empty()
    // fi_cancel(3)
    .cancel(|srx, context| guarded_count(|| srx.0.cancel(context::from_c(context)).map(|()| 0)));
static MSG: Table<OpsMsg, Srx> = msg::with_receives(Table::<OpsMsg, Srx>::empty());
static TAGGED: Table<OpsTagged, Srx> = tagged::with_receives(Table::<OpsTagged, Srx>::empty());

/// fi_control(3) of both contexts, which are always enabled.
fn control(command: c_int) -> c_int {
    guarded_unit(|| match command {
        number::control::ENABLE => Ok(()),
        _ => Err(Errno::NoSys),
    })
}

impl Post for Srx {
    fn flags<'a, M: Message<'a>>(&self) -> OpFlags {
        OpFlags::DEFAULT
    }

    unsafe fn post<'a>(&self, msg: &impl Operation<'a>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { msg.op().post_shared(&*self.0, flags) }
    }
}

impl Srx {
    /// Opens a shared receive context.
    ///
    /// # Errors
    /// The provider's.
    ///
    /// # Safety
    /// The caller follows fi_srx_context(3).
    pub(crate) unsafe fn open(domain: &dyn Domain, attr: *const abi::RxAttr) -> Result<Self> {
        let mut request = RxAttr::default();
        if !attr.is_null() {
            // SAFETY: passed on from the caller.
            let attr = unsafe { required(attr) }?;
            request.caps = Caps::from_bits_truncate(attr.caps);
            request.op_flags = lists::flags(attr.op_flags)?;
            request.size = attr.size;
            request.iov_limit = attr.iov_limit;
        }
        let inner = domain.srx(&request);
        inner.map(Self).map_err(|error| log_error(&error))
    }
}
