//! Sets of an address vector's members: `struct fid_av_set`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::av::{Range, Set, SetAttr};
use selvedge::{Errno, FiAddr, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidAvSet, Ops, OpsAvSet, fclass, number};

use crate::answer::done;
use crate::av::Av;
use crate::given::{given, list, put};
use crate::object::{self, Class, User, argument, close, this};

/// What stands behind a set.
pub(crate) struct AvSet {
    own: Mutex<Set>,
    _av: User,
}

impl AvSet {
    pub(crate) fn set(&self) -> MutexGuard<'_, Set> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: `fid_av_set` begins with its fid, and has a table of functions behind it.
unsafe impl Class for AvSet {
    type Handle = FidAvSet;
    const FCLASS: usize = fclass::AV_SET;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidAvSet {
        FidAvSet { fid, ops: &AV_SET }
    }

    fn closed(fid: Fid) -> FidAvSet {
        FidAvSet { fid, ops: &CLOSED }
    }
}

static FID: Ops = Ops {
    close: Some(close::<AvSet>),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static AV_SET: OpsAvSet = OpsAvSet {
    size: size_of::<OpsAvSet>(),
    set_union: Some(union),
    intersect: Some(intersect),
    diff: Some(diff),
    insert: Some(insert),
    remove: Some(remove),
    addr: Some(addr),
};
static CLOSED: OpsAvSet = OpsAvSet::refusing::<{ libc::EBADF }>();

/// Opens a set.
///
/// # Errors
/// [`Errno::BadFlags`] for flags that sets do not have; those of [`Set::open`].
///
/// # Safety
/// As fi_av_set(3) has it.
pub(crate) unsafe fn open(
    av: &Av,
    attr: *const abi::AvSetAttr,
    out: *mut *mut FidAvSet,
    context: *mut c_void,
) -> Result {
    // SAFETY: passed on from the caller.
    let attr = unsafe { given(attr) }?;
    if out.is_null() {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller.
    let set = Set::open(&*av.own, &unsafe { asked(attr) }?)?;
    let handle = object::open(
        AvSet {
            own: Mutex::new(set),
            _av: av.one_more_user(),
        },
        context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(out, handle) }
}

/// # Safety
/// As [`open`].
unsafe fn asked(attr: &abi::AvSetAttr) -> Result<SetAttr> {
    if attr.flags & !(number::av::UNIVERSE | number::av::COLLECTIVE_SETS) != 0 {
        return Err(Errno::BadFlags);
    }
    let none = FiAddr::NOTAVAIL.0;
    let mut asked = SetAttr::default();
    asked.range = match attr.flags & number::av::UNIVERSE {
        0 if attr.start_addr == none && attr.end_addr == none => Range::Empty,
        0 => Range::Indices {
            start: FiAddr(attr.start_addr),
            end: FiAddr(attr.end_addr),
            stride: attr.stride,
        },
        _ => Range::Universe,
    };
    // SAFETY: passed on from the caller.
    asked.comm_key = unsafe { list(attr.comm_key.cast_const(), attr.comm_key_size) }?.to_vec();
    Ok(asked)
}

/// Changes a set by another one, which may be itself.
///
/// # Safety
/// Both are handles, and `dst` is a set.
unsafe fn change(
    dst: *mut FidAvSet,
    src: *const FidAvSet,
    change: impl FnOnce(&mut Set, &Set) -> Result,
) -> c_int {
    // SAFETY: passed on from the caller.
    let dst: &AvSet = unsafe { this(dst) };
    done(|| {
        // SAFETY: passed on from the caller.
        let src: &AvSet = unsafe { argument(src.cast()) }?;
        let src = src.set().clone();
        change(&mut dst.set(), &src)
    })
}

/// # Safety
/// As fi_av_set_union(3) has it.
unsafe extern "C" fn union(dst: *mut FidAvSet, src: *const FidAvSet) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { change(dst, src, Set::union) }
}

/// # Safety
/// As fi_av_set_intersect(3) has it.
unsafe extern "C" fn intersect(dst: *mut FidAvSet, src: *const FidAvSet) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { change(dst, src, Set::intersect) }
}

/// # Safety
/// As fi_av_set_diff(3) has it.
unsafe extern "C" fn diff(dst: *mut FidAvSet, src: *const FidAvSet) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { change(dst, src, Set::diff) }
}

/// # Safety
/// As fi_av_set_insert(3) has it.
unsafe extern "C" fn insert(set: *mut FidAvSet, addr: abi::FiAddr) -> c_int {
    // SAFETY: passed on from the caller.
    let set: &AvSet = unsafe { this(set) };
    done(|| set.set().insert(FiAddr(addr)))
}

/// # Safety
/// As fi_av_set_remove(3) has it.
unsafe extern "C" fn remove(set: *mut FidAvSet, addr: abi::FiAddr) -> c_int {
    // SAFETY: passed on from the caller.
    let set: &AvSet = unsafe { this(set) };
    done(|| set.set().remove(FiAddr(addr)))
}

/// # Safety
/// As fi_av_set_addr(3) has it.
unsafe extern "C" fn addr(set: *mut FidAvSet, coll: *mut abi::FiAddr) -> c_int {
    // SAFETY: passed on from the caller.
    let set: &AvSet = unsafe { this(set) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { put(coll, set.set().addr().0) })
}
