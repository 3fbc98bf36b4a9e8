//! Wait objects: `enum fi_wait_obj`, descriptors, and timeouts in milliseconds.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use selvedge::poll::Member;
use selvedge::{Errno, Result, wait};
use selvedge_abi::{Fid, fclass, number};

use crate::object::{Object, argument};
use crate::pointer::{put, required};
use crate::queue::cntr::Cntr;
use crate::queue::cq::Cq;
use crate::queue::eq::Eq;
use crate::queue::poll::{SetMember, WaitSet};

/// The wait object of a number.
///
/// # Errors
/// [`Errno::NoSys`] for a wait object that is not supported: a set, a mutex, an array of descriptors.
pub(crate) fn object_from_raw(raw: u32) -> Result<wait::Object> {
    match raw {
        0 => Ok(wait::Object::None),
        1 => Ok(wait::Object::Unspec),
        3 => Ok(wait::Object::Fd),
        5 => Ok(wait::Object::Yield),
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
    kind: wait::Object,
    /// Dropped before the queue or counter closes; the drop removes the queue or counter from its
    /// set.
    _set_member: Option<SetMember>,
}

impl WaitObject {
    /// Makes the wait object of `member`, and adds `member` to `set` if there is one.
    ///
    /// # Errors
    /// Those of [`Object::add_member`].
    pub(crate) fn new(
        kind: wait::Object,
        set: Option<&Object<WaitSet>>,
        member: Member,
    ) -> Result<Self> {
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

/// The queue or counter of a handle.
///
/// # Errors
/// [`Errno::Inval`] for NULL; `other` for an object of another class.
///
/// # Safety
/// `fid` is NULL or a handle.
pub(crate) unsafe fn member(fid: *const Fid, other: Errno) -> Result<Member> {
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
    match unsafe { member(fid, Errno::NoSys) }? {
        Member::Cq(cq) => cq.try_wait(),
        Member::Cntr(cntr) => cntr.try_wait(),
        Member::Eq(eq) => eq.try_wait(),
    }
}
