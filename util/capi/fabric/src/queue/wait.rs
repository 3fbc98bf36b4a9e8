//! Wait objects: `enum fi_wait_obj`, wait sets (`struct fid_wait`), descriptors, and timeouts in
//! milliseconds.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use selvedge::poll::{Member, Set};
use selvedge::wait::Object as Kind;
use selvedge::{Context, Errno, Result};
use selvedge_abi as abi;
use selvedge_abi::{FidWait, Ops, OpsWait, fclass, number};

use crate::object::{self, Object, Table, User, argument, class};
use crate::pointer::{put, required};
use crate::status::guarded_unit;

/// The wait object that attributes request, and their wait set.
///
/// # Errors
/// As [`object_from_raw`]; [`Errno::Inval`] for a handle of another class than a wait set.
///
/// # Safety
/// `set` is NULL or a handle.
pub(crate) unsafe fn object<'a>(
    raw: u32,
    set: *const c_void,
) -> Result<(Kind, Option<&'a Object<WaitSet>>)> {
    if raw != SET {
        return Ok((object_from_raw(raw)?, None));
    }
    // SAFETY: passed on from the caller.
    Ok((Kind::Fd, Some(unsafe { argument(set.cast()) }?)))
}

/// `FI_WAIT_SET`.
const SET: u32 = 2;

/// The wait object of a number.
///
/// # Errors
/// [`Errno::NoSys`] for a wait object that is not supported: a set, a mutex, an array of descriptors.
fn object_from_raw(raw: u32) -> Result<Kind> {
    match raw {
        0 => Ok(Kind::None),
        1 => Ok(Kind::Unspec),
        3 => Ok(Kind::Fd),
        5 => Ok(Kind::Yield),
        _ => Err(Errno::NoSys),
    }
}

/// Converts a timeout from milliseconds. A negative number is `None`, which means no limit.
pub(crate) fn timeout(ms: c_int) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// The wait object of a queue or counter.
#[derive(Debug)]
pub(crate) struct WaitObject {
    kind: Kind,
    /// Dropped before the queue or counter closes; the drop removes the queue or counter from its
    /// set.
    _set_member: Option<SetMember>,
}

impl WaitObject {
    /// Makes the wait object of `member`, and adds `member` to `set` if there is one.
    ///
    /// # Errors
    /// Those of [`Set::add`].
    pub(crate) fn new(kind: Kind, set: Option<&Object<WaitSet>>, member: Member) -> Result<Self> {
        let _set_member = set.map(|set| set.add_member(member)).transpose()?;
        Ok(Self { kind, _set_member })
    }

    /// fi_control(3) of queues and counters.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for other commands, and for a wait object that has no descriptor.
    ///
    /// # Safety
    /// `arg` is NULL or points to the type that the command requires.
    pub(crate) unsafe fn control(
        &self,
        command: c_int,
        arg: *mut c_void,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result {
        match command {
            number::control::GETWAIT => {
                let fd = fd.ok_or(Errno::NoSys)?;
                // SAFETY: passed on from the caller.
                unsafe { put(arg.cast::<c_int>(), fd.as_raw_fd()) }
            }
            // SAFETY: passed on from the caller.
            number::control::GETWAITOBJ => unsafe { put(arg.cast::<u32>(), self.kind as u32) },
            _ => Err(Errno::NoSys),
        }
    }
}

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

/// The object behind the handle of a wait set.
pub(crate) struct WaitSet(Arc<Set>);

class! {
    WaitSet, FidWait, FID, |_| fclass::WAIT;
    tables |_| ops: &WAIT
}

static FID: Table<Ops, WaitSet> = object::ops();
static WAIT: Table<OpsWait, WaitSet> = Table::<OpsWait, WaitSet>::empty()
    // fi_wait(3)
    .wait(|set, wait_ms| guarded_unit(|| set.0.wait(timeout(wait_ms))));

impl WaitSet {
    /// Opens a wait set.
    ///
    /// # Errors
    /// [`Errno::BadFlags`] for any flags; [`Errno::NoSys`] for a wait object that is not supported.
    ///
    /// # Safety
    /// `attr` is NULL or points to attributes.
    pub(crate) unsafe fn open(attr: *const abi::WaitAttr) -> Result<Self> {
        // SAFETY: passed on from the caller.
        let attr = unsafe { required(attr) }?;
        if attr.flags != 0 {
            return Err(Errno::BadFlags);
        }
        match object_from_raw(attr.wait_obj)? {
            Kind::Unspec => Ok(Self(Arc::new(Set::new()))),
            _ => Err(Errno::NoSys),
        }
    }
}

impl Object<WaitSet> {
    /// Adds a queue or counter that was opened for this set.
    ///
    /// # Errors
    /// Those of [`Set::add`].
    fn add_member(&self, member: Member) -> Result<SetMember> {
        self.0.add(member.clone(), Context::default())?;
        Ok(SetMember {
            set: Arc::clone(&self.0),
            member,
            _user: self.new_user(),
        })
    }
}
