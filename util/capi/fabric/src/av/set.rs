//! Sets of an address vector's members: `struct fid_av_set`.

#![expect(unsafe_code, reason = "functions of C")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::av::{Range, Set, SetAttr};
use selvedge::{AddressVector, Errno, FiAddr, Result};
use selvedge_abi as abi;
use selvedge_abi::{FidAvSet, Ops, OpsAvSet, fclass, number};

use crate::object::{self, Table, argument, class};
use crate::pointer::{array, put, required};
use crate::status::guarded_unit;

/// The object behind the handle of a set.
pub(crate) struct AvSet(Mutex<Set>);

impl AvSet {
    pub(crate) fn set(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Combines the set with another set, which may be the same one.
    ///
    /// # Safety
    /// `other` is NULL or a handle.
    unsafe fn combine(
        &self,
        other: *const FidAvSet,
        combine: impl FnOnce(&mut Set, &Set) -> Result,
    ) -> Result {
        // SAFETY: passed on from the caller.
        let other = unsafe { argument::<Self>(other.cast()) }?.set().clone();
        combine(&mut self.set(), &other)
    }
}

class! {
    AvSet, FidAvSet, FID, |_| fclass::AV_SET;
    tables |_| ops: &AV_SET
}

static FID: Table<Ops, AvSet> = object::ops();
static AV_SET: Table<OpsAvSet, AvSet> = Table::<OpsAvSet, AvSet>::empty()
    // SAFETY: the C caller follows fi_av_set_union(3).
    .set_union(|set, other| guarded_unit(|| unsafe { set.combine(other, Set::union) }))
    // SAFETY: the C caller follows fi_av_set_intersect(3).
    .intersect(|set, other| guarded_unit(|| unsafe { set.combine(other, Set::intersect) }))
    // SAFETY: the C caller follows fi_av_set_diff(3).
    .diff(|set, other| guarded_unit(|| unsafe { set.combine(other, Set::diff) }))
    // fi_av_set_insert(3)
    .insert(|set, addr| guarded_unit(|| set.set().insert(FiAddr(addr))))
    // fi_av_set_remove(3)
    .remove(|set, addr| guarded_unit(|| set.set().remove(FiAddr(addr))))
    // SAFETY: the C caller follows fi_av_set_addr(3).
    .addr(|set, coll| guarded_unit(|| unsafe { put(coll, set.set().addr().0) }));

impl AvSet {
    /// Opens a set of members of an address vector.
    ///
    /// # Errors
    /// [`Errno::BadFlags`] for unknown flags; those of [`Set::open`].
    ///
    /// # Safety
    /// The caller follows fi_av_set(3).
    pub(crate) unsafe fn open(av: &dyn AddressVector, attr: *const abi::AvSetAttr) -> Result<Self> {
        // SAFETY: passed on from the caller.
        let attr = unsafe { required(attr) }?;
        // SAFETY: passed on from the caller.
        let set = Set::open(av, &unsafe { attributes(attr) }?)?;
        Ok(Self(Mutex::new(set)))
    }
}

/// # Safety
/// As [`AvSet::open`].
unsafe fn attributes(attr: &abi::AvSetAttr) -> Result<SetAttr> {
    if attr.flags & !(number::av::UNIVERSE | number::av::COLLECTIVE_SETS) != 0 {
        return Err(Errno::BadFlags);
    }
    let unspecified = FiAddr::NOTAVAIL.0;
    let mut request = SetAttr::default();
    request.range = match attr.flags & number::av::UNIVERSE {
        0 if attr.start_addr == unspecified && attr.end_addr == unspecified => Range::Empty,
        0 => Range::Indices {
            start: FiAddr(attr.start_addr),
            end: FiAddr(attr.end_addr),
            stride: attr.stride,
        },
        _ => Range::Universe,
    };
    // SAFETY: passed on from the caller.
    request.comm_key = unsafe { array(attr.comm_key.cast_const(), attr.comm_key_size) }?.to_vec();
    Ok(request)
}
