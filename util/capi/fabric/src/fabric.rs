//! Fabrics: `struct fid_fabric`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use selvedge::info::Version;
use selvedge::{Errno, Hints, Info, Result};
use selvedge_abi as abi;
use selvedge_abi::{Abi, Fid, FidFabric, Ops, OpsFabric, fclass};

use crate::answer::{done, told};
use crate::given::{given, list, put};
use crate::object::{self, Class, User, Users, close, this};
use crate::process::registry;
use crate::{domain, eq, info, pep, sets, wait};

/// What stands behind a fabric.
pub(crate) struct Fabric {
    pub(crate) own: Arc<dyn selvedge::Fabric>,
    /// The API that its program was written for.
    pub(crate) version: Version,
    users: Users,
}

impl Fabric {
    pub(crate) fn one_more_user(&self) -> User {
        self.users.one_more()
    }

    /// The layout of what the program passes.
    pub(crate) fn abi(&self) -> Abi {
        Abi::of_api(self.version.major.into(), self.version.minor.into())
    }
}

// SAFETY: `fid_fabric` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Fabric {
    type Handle = FidFabric;
    const FCLASS: usize = fclass::FABRIC;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidFabric {
        FidFabric {
            fid,
            ops: &FABRIC,
            api_version: self.version.as_raw(),
        }
    }

    fn closed(fid: Fid) -> FidFabric {
        FidFabric {
            fid,
            ops: &CLOSED,
            api_version: 0,
        }
    }

    fn users(&self) -> Option<&Users> {
        Some(&self.users)
    }
}

static FID: Ops = Ops {
    close: Some(close::<Fabric>),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};
static FABRIC: OpsFabric = OpsFabric {
    domain: Some(domain),
    domain2: Some(domain2),
    passive_ep: Some(passive_ep),
    eq_open: Some(eq_open),
    wait_open: Some(sets::wait_open),
    trywait: Some(trywait),
    ..OpsFabric::refusing::<{ libc::ENOSYS }>()
};
static CLOSED: OpsFabric = OpsFabric::refusing::<{ libc::EBADF }>();

/// Opens the fabric that the attributes name.
///
/// # Errors
/// [`Errno::Inval`] without a name, [`Errno::NoDev`] for a provider that is not there, and the
/// provider's.
///
/// # Safety
/// `attr` is NULL or has texts or NULL, `fabric` is NULL or may be written.
pub(crate) unsafe fn open(
    attr: *const abi::FabricAttr,
    version: Option<Version>,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> Result {
    let mut only = info::EMPTY;
    only.fabric_attr = attr.cast_mut();
    // SAFETY: passed on from the caller; there is nothing else in it.
    let described = unsafe { info::read(&raw const only, Abi::V0) }?.info;
    // SAFETY: passed on from the caller.
    let attr = unsafe { given(attr) }?;
    if attr.name.is_null() || attr.prov_name.is_null() || fabric.is_null() {
        return Err(Errno::Inval);
    }
    let version = version.unwrap_or(described.fabric_attr.api_version);
    let opened = adopted(described, &Hints::new()).and_then(|info| {
        let opened = info.fabric();
        opened.map_err(|error| told(&error))
    })?;
    let handle = object::open(
        Fabric {
            own: opened,
            version,
            users: Users::default(),
        },
        context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(fabric, handle) }
}

/// A description that C has handed back, so that it opens.
///
/// # Errors
/// [`Errno::NoDev`] for a provider that is not there.
pub(crate) fn adopted(info: Info, hints: &Hints) -> Result<Info> {
    let adopted = registry().adopt(info, hints);
    adopted.map_err(|error| told(&error))
}

/// # Safety
/// As fi_domain(3) has it.
unsafe extern "C" fn domain(
    fabric: *mut FidFabric,
    info: *mut abi::Info,
    domain: *mut *mut abi::FidDomain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let fabric = unsafe { this(fabric) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { domain::open(fabric, info, domain, context) })
}

/// # Safety
/// As fi_domain(3) has it.
unsafe extern "C" fn domain2(
    fabric: *mut FidFabric,
    info: *mut abi::Info,
    out: *mut *mut abi::FidDomain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return done(|| Err(Errno::BadFlags));
    }
    // SAFETY: passed on from the caller.
    unsafe { domain(fabric, info, out, context) }
}

/// # Safety
/// As fi_passive_ep(3) has it.
unsafe extern "C" fn passive_ep(
    fabric: *mut FidFabric,
    info: *mut abi::Info,
    out: *mut *mut abi::FidPep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let fabric = unsafe { this(fabric) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { pep::open(fabric, info, out, context) })
}

/// # Safety
/// As fi_eq_open(3) has it.
unsafe extern "C" fn eq_open(
    fabric: *mut FidFabric,
    attr: *mut abi::EqAttr,
    out: *mut *mut abi::FidEq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    let fabric = unsafe { this(fabric) };
    // SAFETY: passed on from the caller.
    done(|| unsafe { eq::open(fabric, attr, out, context) })
}

/// # Safety
/// As fi_trywait(3) has it: an array of handles.
unsafe extern "C" fn trywait(_fabric: *mut FidFabric, fids: *mut *mut Fid, count: c_int) -> c_int {
    done(|| {
        let count = usize::try_from(count).map_err(|_| Errno::Inval)?;
        // SAFETY: passed on from the caller.
        let fids = unsafe { list(fids, count) }?;
        // SAFETY: passed on from the caller.
        fids.iter()
            .try_for_each(|&fid| unsafe { wait::try_wait(fid) })
    })
}
