//! Poll sets and wait sets: `struct fid_poll` and `struct fid_wait`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use selvedge::poll::{Member, Set};
use selvedge::wait::Object as Kind;
use selvedge::{Context, Errno, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidPoll, FidWait, Ops, OpsPoll, OpsWait, fclass};

use crate::domain::Domain;
use crate::ep::post::lists;
use crate::fabric::Fabric;
use crate::object::{self, Class, Object, Table, User, argument};
use crate::pointer::{output_array, required};
use crate::queue::cq::context_of;
use crate::queue::wait;
use crate::status::{guarded, guarded_unit};

/// The object behind the handle of a poll set.
pub(crate) struct PollSet(Set);

/// The object behind the handle of a wait set.
pub(crate) struct WaitSet(Arc<Set>);

/// The membership of a queue or counter in the wait set for which it was opened.
#[derive(Debug)]
pub(crate) struct SetMember {
    set: Arc<Set>,
    member: Member,
    _user: User,
}

impl Drop for SetMember {
    fn drop(&mut self) {
        // The member was added when `self` was created, so removing it cannot fail.
        let _ = self.set.remove(&self.member);
    }
}

// SAFETY: `fid_poll` begins with its fid, and has a table of functions behind it.
unsafe impl Class for PollSet {
    type Handle = FidPoll;
    const FCLASS: usize = fclass::POLL;
    const OPS: &'static Table<Ops, Self> = &POLL_FID;

    fn handle(&self, fid: Fid) -> FidPoll {
        let ops = &POLL.ops;
        FidPoll { fid, ops }
    }
}

// SAFETY: `fid_wait` begins with its fid, and has a table of functions behind it.
unsafe impl Class for WaitSet {
    type Handle = FidWait;
    const FCLASS: usize = fclass::WAIT;
    const OPS: &'static Table<Ops, Self> = &WAIT_FID;

    fn handle(&self, fid: Fid) -> FidWait {
        let ops = &WAIT.ops;
        FidWait { fid, ops }
    }
}

static POLL_FID: Table<Ops, PollSet> = object::ops();
static POLL: Table<OpsPoll, PollSet> = Table::<OpsPoll, PollSet>::empty()
    .poll(|set, contexts, count| {
        guarded(|| {
            let count = usize::try_from(count).map_err(|_| Errno::Inval)?;
            // SAFETY: the C caller follows fi_poll(3).
            let out = unsafe { output_array(contexts, count) }?;
            let ready_count = set.0.poll_each(out.len(), |index, context| {
                out[index].write(context_of(context));
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
static WAIT_FID: Table<Ops, WaitSet> = object::ops();
static WAIT: Table<OpsWait, WaitSet> = Table::<OpsWait, WaitSet>::empty()
    // fi_wait(3)
    .wait(|set, timeout| guarded_unit(|| set.0.wait(wait::timeout(timeout))));

/// Opens a poll set.
///
/// # Errors
/// [`Errno::BadFlags`] for any flags.
///
/// # Safety
/// The caller follows fi_poll_open(3).
pub(crate) unsafe fn open_poll(
    domain: &Object<Domain>,
    attr: *const abi::PollAttr,
    out: *mut *mut FidPoll,
) -> Result {
    // SAFETY: passed on from the caller.
    let make = || match attr.is_null() || unsafe { required(attr) }?.flags == 0 {
        true => Ok(PollSet(Set::new())),
        false => Err(Errno::BadFlags),
    };
    // SAFETY: passed on from the caller.
    unsafe { domain.child(out, ptr::null_mut(), make) }
}

/// Opens a wait set.
///
/// # Errors
/// [`Errno::BadFlags`] for any flags; [`Errno::NoSys`] for a wait object that is not supported.
///
/// # Safety
/// The caller follows fi_wait_open(3).
pub(crate) unsafe fn open_wait(
    fabric: &Object<Fabric>,
    attr: *const abi::WaitAttr,
    out: *mut *mut FidWait,
) -> Result {
    let make = || {
        // SAFETY: passed on from the caller.
        let attr = unsafe { required(attr) }?;
        if attr.flags != 0 {
            return Err(Errno::BadFlags);
        }
        match wait::object_from_raw(attr.wait_obj)? {
            Kind::Unspec => Ok(WaitSet(Arc::new(Set::new()))),
            _ => Err(Errno::NoSys),
        }
    };
    // SAFETY: passed on from the caller.
    unsafe { fabric.child(out, ptr::null_mut(), make) }
}

/// The wait object that attributes request, and their wait set.
///
/// # Errors
/// As [`wait::object_from_raw`]; [`Errno::Inval`] for a handle of another class than a wait set.
///
/// # Safety
/// `set` is NULL or a handle.
pub(crate) unsafe fn wait_object<'a>(
    raw: u32,
    set: *const c_void,
) -> Result<(Kind, Option<&'a Object<WaitSet>>)> {
    if raw != SET {
        return Ok((wait::object_from_raw(raw)?, None));
    }
    // SAFETY: passed on from the caller.
    Ok((Kind::Fd, Some(unsafe { argument(set.cast()) }?)))
}

/// `FI_WAIT_SET`.
const SET: u32 = 2;

impl Object<WaitSet> {
    /// Adds a queue or counter that was opened for this set.
    ///
    /// # Errors
    /// Those of [`Set::add`].
    pub(crate) fn add_member(&self, member: Member) -> Result<SetMember> {
        self.0.add(member.clone(), Context::default())?;
        Ok(SetMember {
            set: Arc::clone(&self.0),
            member,
            _user: self.new_user(),
        })
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
    let member = unsafe { wait::member(fid, Errno::Inval) }?;
    Ok((member, lists::context(head.context)))
}

const _: () = assert!(size_of::<Context>() == size_of::<*mut c_void>());
