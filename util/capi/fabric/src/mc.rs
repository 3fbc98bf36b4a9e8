//! Groups that an endpoint is a member of: `struct fid_mc`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use selvedge::{Errno, FiAddr, Membership, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidEp, FidMc, Ops, fclass};

use crate::addr;
use crate::answer::done;
use crate::av_set::AvSet;
use crate::ep::Ep;
use crate::given::{given, put};
use crate::object::{self, Class, User, argument, close, this};

/// What stands behind a group.
struct Mc {
    own: Arc<dyn Membership>,
    _ep: User,
}

// SAFETY: `fid_mc` begins with its fid, and has no table of functions.
unsafe impl Class for Mc {
    type Handle = FidMc;
    const FCLASS: usize = fclass::MC;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidMc {
        FidMc {
            fid,
            fi_addr: self.own.addr().0,
        }
    }

    fn closed(fid: Fid) -> FidMc {
        FidMc {
            fid,
            fi_addr: FiAddr::NOTAVAIL.0,
        }
    }
}

static FID: Ops = Ops {
    close: Some(close::<Mc>),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};

/// The flag of fi_join_collective(3).
const COLLECTIVE: u64 = selvedge::Caps::COLLECTIVE.bits();
/// Directions, which say no more than the endpoint's capabilities do.
const DIRECTIONS: u64 = selvedge::Caps::SEND.union(selvedge::Caps::RECV).bits();

/// # Safety
/// As fi_join(3) and fi_join_collective(3) have it.
pub(crate) unsafe extern "C" fn join(
    ep: *mut FidEp,
    at: *const c_void,
    flags: u64,
    out: *mut *mut FidMc,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    done(|| {
        if out.is_null() || at.is_null() {
            return Err(Errno::Inval);
        }
        if flags & !(COLLECTIVE | DIRECTIONS) != 0 {
            return Err(Errno::BadFlags);
        }
        let word = crate::ep::lists::context(context);
        let own = match flags & COLLECTIVE {
            0 => {
                // SAFETY: passed on from the caller.
                let (group, _) = unsafe { addr::at(at, ep.format()) }?;
                ep.live()?.join(&group, word)?
            }
            // SAFETY: passed on from the caller.
            _ => unsafe { join_set(ep, at.cast(), word) }?,
        };
        let mc = Mc {
            own,
            _ep: ep.one_more_user(),
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(mc, context)) }
    })
}

/// # Safety
/// As fi_join_collective(3) has it.
unsafe fn join_set(
    ep: &Ep,
    at: *const abi::CollectiveAddr,
    context: selvedge::Context,
) -> Result<Arc<dyn Membership>> {
    // SAFETY: passed on from the caller.
    let at = unsafe { given(at) }?;
    // SAFETY: passed on from the caller.
    let set: &AvSet = unsafe { argument(at.set.cast()) }?;
    let coll = ep.live()?.collective().ok_or(Errno::NoSys)?;
    let set = set.set();
    coll.join(&set, context)
}
