//! Groups that an endpoint is a member of: `struct fid_mc`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::sync::Arc;

use selvedge::{AddrFormat, Address, Context, Endpoint, Errno, Membership, Result};
use selvedge_abi as abi;
use selvedge_abi::{FidMc, Ops, fclass};

use crate::addr;
use crate::av::set::AvSet;
use crate::object::{self, Table, argument, class};
use crate::pointer::required;

/// The object behind the handle of a group.
pub(crate) struct Mc(Arc<dyn Membership>);

class! {
    Mc, FidMc, FID, |_| fclass::MC;
    members |mc| fi_addr: mc.0.addr().0
}

static FID: Table<Ops, Mc> = object::ops();

/// The flag of fi_join_collective(3).
const COLLECTIVE: u64 = selvedge::Caps::COLLECTIVE.bits();
/// Flags of directions, which are ignored: the endpoint's capabilities decide.
const DIRECTIONS: u64 = selvedge::Caps::SEND.union(selvedge::Caps::RECV).bits();

/// The group that an endpoint joins.
pub(super) enum Group<'a> {
    /// A multicast address.
    Address(Address),
    /// The members of a set, for collectives.
    Set(&'a AvSet),
}

impl Group<'_> {
    /// Reads the address of a group.
    ///
    /// # Errors
    /// [`Errno::Inval`] for NULL and for an invalid address; [`Errno::BadFlags`].
    ///
    /// # Safety
    /// The caller follows fi_join(3) and fi_join_collective(3).
    pub(super) unsafe fn read(addr: *const c_void, flags: u64, format: AddrFormat) -> Result<Self> {
        if addr.is_null() {
            return Err(Errno::Inval);
        }
        if flags & !(COLLECTIVE | DIRECTIONS) != 0 {
            return Err(Errno::BadFlags);
        }
        if flags & COLLECTIVE == 0 {
            // SAFETY: passed on from the caller.
            return Ok(Self::Address(unsafe { addr::read(addr, format) }?.0));
        }
        // SAFETY: passed on from the caller.
        let addr: &abi::CollectiveAddr = unsafe { required(addr.cast()) }?;
        // SAFETY: passed on from the caller.
        let set = unsafe { argument::<AvSet>(addr.set.cast()) }?;
        Ok(Self::Set(set))
    }

    /// Joins the group.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a set if the provider has no collectives; the provider's.
    pub(super) fn join(self, ep: &dyn Endpoint, context: Context) -> Result<Mc> {
        match self {
            Self::Address(group) => ep.join(&group, context),
            Self::Set(set) => {
                let coll = ep.collective().ok_or(Errno::NoSys)?;
                coll.join(&set.set(), context)
            }
        }
        .map(Mc)
    }
}
