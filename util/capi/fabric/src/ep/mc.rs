//! Groups that an endpoint is a member of: `struct fid_mc`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::sync::Arc;

use selvedge::{Errno, Membership, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidMc, Ops, fclass};

use crate::addr;
use crate::av::set::AvSet;
use crate::ep::{Ep, lists};
use crate::object::{self, Class, Object, Table, argument};
use crate::pointer::required;

/// The object behind the handle of a group.
pub(crate) struct Mc(Arc<dyn Membership>);

// SAFETY: `fid_mc` begins with its fid, and has no table of functions.
unsafe impl Class for Mc {
    type Handle = FidMc;
    const FCLASS: usize = fclass::MC;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidMc {
        let fi_addr = self.0.addr().0;
        FidMc { fid, fi_addr }
    }
}

static FID: Table<Ops, Mc> = object::ops();

/// The flag of fi_join_collective(3).
const COLLECTIVE: u64 = selvedge::Caps::COLLECTIVE.bits();
/// Flags of directions, which are ignored: the endpoint's capabilities decide.
const DIRECTIONS: u64 = selvedge::Caps::SEND.union(selvedge::Caps::RECV).bits();

/// Joins a group.
///
/// # Errors
/// [`Errno::Inval`] for NULL; [`Errno::BadFlags`]; the provider's.
///
/// # Safety
/// The caller follows fi_join(3) and fi_join_collective(3).
pub(crate) unsafe fn join(
    ep: &Object<Ep>,
    addr: *const c_void,
    flags: u64,
    out: *mut *mut FidMc,
    context: *mut c_void,
) -> Result {
    let make = || {
        if addr.is_null() {
            return Err(Errno::Inval);
        }
        if flags & !(COLLECTIVE | DIRECTIONS) != 0 {
            return Err(Errno::BadFlags);
        }
        let join_context = lists::context(context);
        if flags & COLLECTIVE != 0 {
            // SAFETY: passed on from the caller.
            return unsafe { join_set(ep, addr.cast(), join_context) }.map(Mc);
        }
        // SAFETY: passed on from the caller.
        let (group, _) = unsafe { addr::read(addr, ep.format()) }?;
        ep.live()?.join(&group, join_context).map(Mc)
    };
    // SAFETY: passed on from the caller.
    unsafe { ep.child(out, context, make) }
}

/// # Safety
/// The caller follows fi_join_collective(3).
unsafe fn join_set(
    ep: &Ep,
    addr: *const abi::CollectiveAddr,
    context: selvedge::Context,
) -> Result<Arc<dyn Membership>> {
    // SAFETY: passed on from the caller.
    let addr = unsafe { required(addr) }?;
    // SAFETY: passed on from the caller.
    let set = unsafe { argument::<AvSet>(addr.set.cast()) }?;
    let coll = ep.live()?.collective().ok_or(Errno::NoSys)?;
    let set = set.set();
    coll.join(&set, context)
}
