//! Poll sets: `struct fid_poll`, and fi_trywait(3).

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_int;
use std::sync::Arc;

use selvedge::poll::{Member, Set};
use selvedge::{Context, Errno, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidPoll, Ops, OpsPoll, fclass};

use super::cntr::Cntr;
use super::cq::Cq;
use super::eq::Eq;
use crate::context;
use crate::object::{self, Table, argument, class};
use crate::pointer::{output_array, required};
use crate::status::{guarded, guarded_unit};

/// The object behind the handle of a poll set.
pub(crate) struct PollSet(Set);

class! {
    PollSet, FidPoll, FID, |_| fclass::POLL;
    tables |_| ops: &POLL
}

static FID: Table<Ops, PollSet> = object::ops();
static POLL: Table<OpsPoll, PollSet> = Table::<OpsPoll, PollSet>::empty()
    .poll(|set, contexts, count| {
        guarded(|| {
            let count = usize::try_from(count).map_err(|_| Errno::Inval)?;
            // SAFETY: the C caller follows fi_poll(3).
            let out = unsafe { output_array(contexts, count) }?;
            let ready_count = set.0.poll_each(out.len(), |index, context| {
                out[index].write(context::to_c(context));
            });
            Ok(c_int::try_from(ready_count).unwrap_or(c_int::MAX))
        })
    })
    .poll_add(|set, fid, flags| {
        guarded_unit(|| {
            // SAFETY: the C caller passes a handle, as fi_poll_add(3) requires.
            let (member, context) = unsafe { member(fid, flags) }?;
            set.0.add(member, context)
        })
    })
    .poll_del(|set, fid, flags| {
        guarded_unit(|| {
            // SAFETY: the C caller passes a handle, as fi_poll_del(3) requires.
            let (member, _) = unsafe { member(fid, flags) }?;
            set.0.remove(&member)
        })
    });

impl PollSet {
    /// Opens a poll set.
    ///
    /// # Errors
    /// [`Errno::BadFlags`] for any flags.
    ///
    /// # Safety
    /// `attr` is NULL or points to attributes.
    pub(crate) unsafe fn open(attr: *const abi::PollAttr) -> Result<Self> {
        // SAFETY: passed on from the caller.
        if attr.is_null() || unsafe { required(attr) }?.flags == 0 {
            Ok(Self(Set::new()))
        } else {
            Err(Errno::BadFlags)
        }
    }
}

/// Checks that a thread may block on the descriptor of an object.
///
/// # Errors
/// [`Errno::Again`] when the object must be read first; [`Errno::NoSys`] for an object of another
/// class.
///
/// # Safety
/// `fid` is NULL or a handle.
pub(crate) unsafe fn try_wait(fid: *const Fid) -> Result {
    // SAFETY: passed on from the caller.
    match unsafe { queue_or_counter(fid, Errno::NoSys) }? {
        Member::Cq(cq) => cq.try_wait(),
        Member::Cntr(cntr) => cntr.try_wait(),
        Member::Eq(eq) => eq.try_wait(),
    }
}

/// # Safety
/// `fid` is NULL or a handle.
unsafe fn member(fid: *const Fid, flags: u64) -> Result<(Member, Context)> {
    if flags != 0 {
        return Err(Errno::BadFlags);
    }
    // SAFETY: passed on from the caller.
    let head = unsafe { required(fid) }?;
    // SAFETY: passed on from the caller.
    let member = unsafe { queue_or_counter(fid, Errno::Inval) }?;
    Ok((member, context::from_c(head.context)))
}

/// The queue or counter of a handle.
///
/// # Errors
/// [`Errno::Inval`] for NULL; `other` for an object of another class.
///
/// # Safety
/// `fid` is NULL or a handle.
unsafe fn queue_or_counter(fid: *const Fid, other: Errno) -> Result<Member> {
    // SAFETY: passed on from the caller, here and below.
    Ok(match unsafe { required(fid) }?.fclass {
        // SAFETY: as above.
        fclass::CQ => Member::Cq(Arc::clone(&unsafe { argument::<Cq>(fid) }?.inner)),
        // SAFETY: as above.
        fclass::CNTR => Member::Cntr(Arc::clone(&unsafe { argument::<Cntr>(fid) }?.inner)),
        // SAFETY: as above.
        fclass::EQ => Member::Eq(Arc::clone(&unsafe { argument::<Eq>(fid) }?.inner)),
        _ => return Err(other),
    })
}
