//! Counters: `struct fid_cntr`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use selvedge::cntr::{Attr, Events};
use selvedge::poll::Member;
use selvedge::{Counter, Errno, Result, wait as wait_object};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidCntr, Ops, OpsCntr, fclass};

use crate::answer::{done, told};
use crate::domain::Domain;
use crate::given::{beginning, put};
use crate::object::{self, Class, User, Users, close, of_own_fid, this};
use crate::sets::{self, Held, WaitSet};
use crate::wait;

/// What stands behind a counter.
pub(crate) struct Cntr {
    pub(crate) own: Arc<dyn Counter>,
    wait_obj: wait_object::Object,
    /// Before the counter is closed, the set that it is in lets it go.
    _held: Option<Held>,
    users: Users,
    _domain: User,
}

impl Cntr {
    pub(crate) fn one_more_user(&self) -> User {
        self.users.one_more()
    }
}

// SAFETY: `fid_cntr` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Cntr {
    type Handle = FidCntr;
    const FCLASS: usize = fclass::CNTR;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidCntr {
        FidCntr { fid, ops: &CNTR }
    }

    fn closed(fid: Fid) -> FidCntr {
        FidCntr { fid, ops: &CLOSED }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

static FID: Ops = Ops {
    close: Some(close::<Cntr>),
    control: Some(control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static CNTR: OpsCntr = OpsCntr {
    read: Some(read),
    readerr: Some(readerr),
    add: Some(add),
    set: Some(set),
    wait: Some(wait),
    adderr: Some(adderr),
    seterr: Some(seterr),
    ..OpsCntr::refusing::<{ libc::ENOSYS }>()
};
static CLOSED: OpsCntr = OpsCntr::refusing::<{ libc::EBADF }>();

/// Bytes of `struct fi_cntr_attr` before accelerators.
const ATTR_1_0: usize = 24;

/// Opens a counter.
///
/// # Errors
/// [`Errno::NoSys`] for a wait object that is not offered; [`Errno::Inval`] for events that there
/// are not; the provider's.
///
/// # Safety
/// `attr` is NULL or names attributes, `out` is NULL or may be written.
pub(crate) unsafe fn open(
    domain: &Domain,
    attr: *const abi::CntrAttr,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> Result {
    if out.is_null() {
        return Err(Errno::Inval);
    }
    let (mut asked, mut set) = (Attr::default(), None);
    if !attr.is_null() {
        // SAFETY: passed on from the caller: every version has this much.
        let attr = unsafe { beginning(attr, ATTR_1_0) }?;
        // SAFETY: passed on from the caller.
        (asked.wait_obj, set) = unsafe { sets::wanted(attr.wait_obj, attr.wait_set) }?;
        asked.events = match attr.events {
            0 => Events::Comp,
            1 => Events::Bytes,
            _ => return Err(Errno::Inval),
        };
    }
    let own = domain.own.cntr(&asked).map_err(|error| told(&error))?;
    let hold = |set: &WaitSet| set.hold(Member::Cntr(Arc::clone(&own)));
    let held = set.map(hold).transpose()?;
    let handle = object::open(
        Cntr {
            own,
            wait_obj: asked.wait_obj,
            _held: held,
            users: Users::default(),
            _domain: domain.one_more_user(),
        },
        context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(out, handle) }
}

/// # Safety
/// As fi_control(3) has it.
unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { of_own_fid(fid) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { wait::control(command, arg, cntr.wait_obj, cntr.own.wait_fd()) })
}

/// # Safety
/// `cntr` is a counter.
unsafe extern "C" fn read(cntr: *mut FidCntr) -> u64 {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { this(cntr) };
    cntr.own.read()
}

/// # Safety
/// `cntr` is a counter.
unsafe extern "C" fn readerr(cntr: *mut FidCntr) -> u64 {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { this(cntr) };
    cntr.own.read_err()
}

/// # Safety
/// `cntr` is a counter.
unsafe extern "C" fn add(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { this(cntr) };
    cntr.own.add(value);
    0
}

/// # Safety
/// `cntr` is a counter.
unsafe extern "C" fn set(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { this(cntr) };
    cntr.own.set(value);
    0
}

/// # Safety
/// `cntr` is a counter.
unsafe extern "C" fn adderr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { this(cntr) };
    cntr.own.add_err(value);
    0
}

/// # Safety
/// `cntr` is a counter.
unsafe extern "C" fn seterr(cntr: *mut FidCntr, value: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { this(cntr) };
    cntr.own.set_err(value);
    0
}

/// # Safety
/// `cntr` is a counter.
unsafe extern "C" fn wait(cntr: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: passed on from the caller.
    let cntr: &Cntr = unsafe { this(cntr) };
    done(|| cntr.own.wait(threshold, wait::patience(timeout)))
}
