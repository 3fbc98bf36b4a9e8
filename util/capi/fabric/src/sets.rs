//! Poll sets and wait sets: `struct fid_poll` and `struct fid_wait`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use selvedge::poll::{Member, Set};
use selvedge::wait::Object;
use selvedge::{Context, Errno, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidPoll, FidWait, Ops, OpsPoll, OpsWait, fclass};

use crate::answer::{call, done};
use crate::cntr::Cntr;
use crate::cq::{Cq, context_of};
use crate::domain::Domain;
use crate::eq::Eq;
use crate::fabric::Fabric;
use crate::given::{given, put, room};
use crate::object::{self, Class, User, Users, argument, close, this};
use crate::wait;

/// What stands behind a poll set.
pub(crate) struct PollSet {
    own: Set,
    _domain: User,
}

/// What stands behind a wait set.
pub(crate) struct WaitSet {
    own: Arc<Set>,
    users: Users,
    _fabric: User,
}

/// A queue or counter that was opened for a wait set, as long as it is open.
pub(crate) struct Held {
    set: Arc<Set>,
    member: Member,
    _user: User,
}

impl Drop for Held {
    fn drop(&mut self) {
        // It was added when this was made.
        let _ = self.set.remove(&self.member);
    }
}

// SAFETY: `fid_poll` begins with its fid, and has a table of functions behind it.
unsafe impl Class for PollSet {
    type Handle = FidPoll;
    const FCLASS: usize = fclass::POLL;

    fn ops() -> &'static Ops {
        &POLL_FID
    }

    fn handle(&self, fid: Fid) -> FidPoll {
        FidPoll { fid, ops: &POLL }
    }

    fn closed(fid: Fid) -> FidPoll {
        let ops = &POLL_CLOSED;
        FidPoll { fid, ops }
    }
}

// SAFETY: `fid_wait` begins with its fid, and has a table of functions behind it.
unsafe impl Class for WaitSet {
    type Handle = FidWait;
    const FCLASS: usize = fclass::WAIT;

    fn ops() -> &'static Ops {
        &WAIT_FID
    }

    fn handle(&self, fid: Fid) -> FidWait {
        FidWait { fid, ops: &WAIT }
    }

    fn closed(fid: Fid) -> FidWait {
        let ops = &WAIT_CLOSED;
        FidWait { fid, ops }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

static POLL_FID: Ops = Ops {
    close: Some(close::<PollSet>),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static WAIT_FID: Ops = Ops {
    close: Some(close::<WaitSet>),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static POLL: OpsPoll = OpsPoll {
    size: size_of::<OpsPoll>(),
    poll: Some(poll),
    poll_add: Some(poll_add),
    poll_del: Some(poll_del),
};
static WAIT: OpsWait = OpsWait {
    size: size_of::<OpsWait>(),
    wait: Some(wait_for),
};
static POLL_CLOSED: OpsPoll = OpsPoll::refusing::<{ libc::EBADF }>();
static WAIT_CLOSED: OpsWait = OpsWait::refusing::<{ libc::EBADF }>();

/// `fi_poll_open`.
///
/// # Safety
/// As fi_poll(3) has it.
pub(crate) unsafe extern "C" fn poll_open(
    domain: *mut abi::FidDomain,
    attr: *mut abi::PollAttr,
    out: *mut *mut FidPoll,
) -> c_int {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { this(domain) };
    done(|| {
        // SAFETY: passed on from the caller.
        if !attr.is_null() && unsafe { given(attr.cast_const()) }?.flags != 0 {
            return Err(Errno::BadFlags);
        }
        if out.is_null() {
            return Err(Errno::Inval);
        }
        let set = PollSet {
            own: Set::new(),
            _domain: domain.one_more_user(),
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(set, std::ptr::null_mut())) }
    })
}

/// `fi_wait_open`.
///
/// # Safety
/// As fi_poll(3) has it.
pub(crate) unsafe extern "C" fn wait_open(
    fabric: *mut abi::FidFabric,
    attr: *mut abi::WaitAttr,
    out: *mut *mut FidWait,
) -> c_int {
    // SAFETY: passed on from the caller.
    let fabric: &Fabric = unsafe { this(fabric) };
    done(|| {
        // SAFETY: passed on from the caller.
        let attr = unsafe { given(attr.cast_const()) }?;
        if attr.flags != 0 {
            return Err(Errno::BadFlags);
        }
        let is_offered = matches!(wait::object(attr.wait_obj)?, Object::Unspec);
        if !is_offered {
            return Err(Errno::NoSys);
        }
        if out.is_null() {
            return Err(Errno::Inval);
        }
        let set = WaitSet {
            own: Arc::new(Set::new()),
            users: Users::default(),
            _fabric: fabric.one_more_user(),
        };
        // SAFETY: passed on from the caller.
        unsafe { put(out, object::open(set, std::ptr::null_mut())) }
    })
}

/// The wait object that something is opened with, and the set that it is for.
///
/// # Errors
/// As [`wait::object`]; [`Errno::Inval`] for what is no wait set.
///
/// # Safety
/// `set` is NULL or a handle.
pub(crate) unsafe fn wanted<'a>(
    raw: u32,
    set: *const c_void,
) -> Result<(Object, Option<&'a WaitSet>)> {
    if raw != SET {
        return Ok((wait::object(raw)?, None));
    }
    // SAFETY: passed on from the caller.
    Ok((Object::Fd, Some(unsafe { argument(set.cast()) }?)))
}

/// `FI_WAIT_SET`.
const SET: u32 = 2;

impl WaitSet {
    /// Has the set wait for something that was opened for it.
    ///
    /// # Errors
    /// Those of [`Set::add`].
    pub(crate) fn hold(&self, member: Member) -> Result<Held> {
        self.own.add(member.clone(), Context::default())?;
        Ok(Held {
            set: Arc::clone(&self.own),
            member,
            _user: self.users.one_more(),
        })
    }
}

/// # Safety
/// As fi_wait(3) has it.
unsafe extern "C" fn wait_for(set: *mut FidWait, timeout: c_int) -> c_int {
    // SAFETY: passed on from the caller.
    let set: &WaitSet = unsafe { this(set) };
    done(|| set.own.wait(wait::patience(timeout)))
}

/// # Safety
/// As fi_poll(3) has it.
unsafe extern "C" fn poll(set: *mut FidPoll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    // SAFETY: passed on from the caller.
    let set: &PollSet = unsafe { this(set) };
    call(|| {
        let count = usize::try_from(count).map_err(|_| Errno::Inval)?;
        // SAFETY: passed on from the caller.
        let out = unsafe { room(contexts, count) }?;
        let found = set.own.poll_each(out.len(), |at, context| {
            out[at].write(context_of(context));
        });
        Ok(c_int::try_from(found).unwrap_or(c_int::MAX))
    })
}

/// # Safety
/// As fi_poll(3) has it.
unsafe extern "C" fn poll_add(set: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let set: &PollSet = unsafe { this(set) };
    done(|| {
        // SAFETY: passed on from the caller.
        let (member, context) = unsafe { member(fid, flags) }?;
        set.own.add(member, context)
    })
}

/// # Safety
/// As fi_poll(3) has it.
unsafe extern "C" fn poll_del(set: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let set: &PollSet = unsafe { this(set) };
    done(|| {
        // SAFETY: passed on from the caller.
        let (member, _) = unsafe { member(fid, flags) }?;
        set.own.remove(&member)
    })
}

/// # Safety
/// `fid` is NULL or a handle.
unsafe fn member(fid: *mut Fid, flags: u64) -> Result<(Member, Context)> {
    if flags != 0 {
        return Err(Errno::BadFlags);
    }
    // SAFETY: passed on from the caller.
    let head = unsafe { given(fid.cast_const()) }?;
    let context = Context(head.context.expose_provenance() as u64);
    let member = match head.fclass {
        fclass::CQ => {
            // SAFETY: passed on from the caller.
            let cq: &Cq = unsafe { argument(fid) }?;
            Member::Cq(Arc::clone(&cq.own))
        }
        fclass::CNTR => {
            // SAFETY: passed on from the caller.
            let cntr: &Cntr = unsafe { argument(fid) }?;
            Member::Cntr(Arc::clone(&cntr.own))
        }
        fclass::EQ => {
            // SAFETY: passed on from the caller.
            let eq: &Eq = unsafe { argument(fid) }?;
            Member::Eq(Arc::clone(&eq.own))
        }
        _ => return Err(Errno::Inval),
    };
    Ok((member, context))
}

const _: () = assert!(size_of::<Context>() == size_of::<*mut c_void>());
