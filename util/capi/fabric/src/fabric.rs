//! Fabrics: `struct fid_fabric`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::sync::Arc;

use selvedge::info::Version;
use selvedge::{Errno, Hints, Info, Result};
use selvedge_abi as abi;
use selvedge_abi::{Abi, Fid, FidFabric, Ops, OpsFabric, fclass};

use crate::object::{self, Class, Table};
use crate::pointer::{array, required};
use crate::process::registry;
use crate::queue::eq;
use crate::queue::poll as sets;
use crate::queue::wait;
use crate::status::{guarded_unit, log_error};
use crate::{domain, info, pep};

/// The object behind the handle of a fabric.
pub(crate) struct Fabric {
    pub(crate) inner: Arc<dyn selvedge::Fabric>,
    /// The API version that the program uses.
    pub(crate) version: Version,
}

impl Fabric {
    /// The layout of structures that the program passes.
    pub(crate) fn abi(&self) -> Abi {
        Abi::of_api(self.version.major.into(), self.version.minor.into())
    }
}

// SAFETY: `fid_fabric` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Fabric {
    type Handle = FidFabric;
    const FCLASS: usize = fclass::FABRIC;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidFabric {
        FidFabric {
            fid,
            ops: &FABRIC.ops,
            api_version: self.version.as_raw(),
        }
    }
}

static FID: Table<Ops, Fabric> = object::ops();
static FABRIC: Table<OpsFabric, Fabric> = Table::<OpsFabric, Fabric>::empty()
    .domain(|fabric, info, domain, context| {
        // SAFETY: the C caller follows fi_domain(3).
        guarded_unit(|| unsafe { domain::open(fabric, info, domain, context) })
    })
    .domain2(|fabric, info, domain, flags, context| {
        guarded_unit(|| match flags {
            // SAFETY: the C caller follows fi_domain2(3).
            0 => unsafe { domain::open(fabric, info, domain, context) },
            _ => Err(Errno::BadFlags),
        })
    })
    .passive_ep(|fabric, info, pep, context| {
        // SAFETY: the C caller follows fi_passive_ep(3).
        guarded_unit(|| unsafe { pep::open(fabric, info, pep, context) })
    })
    .eq_open(|fabric, attr, eq, context| {
        // SAFETY: the C caller follows fi_eq_open(3).
        guarded_unit(|| unsafe { eq::open(fabric, attr, eq, context) })
    })
    .wait_open(|fabric, attr, set| {
        // SAFETY: the C caller follows fi_wait_open(3).
        guarded_unit(|| unsafe { sets::open_wait(fabric, attr, set) })
    })
    .trywait(|_, fids, count| {
        guarded_unit(|| {
            let count = usize::try_from(count).map_err(|_| Errno::Inval)?;
            // SAFETY: the C caller passes handles, as fi_trywait(3) requires, here and below.
            let fids = unsafe { array(fids, count) }?;
            let mut fids = fids.iter();
            // SAFETY: as above.
            fids.try_for_each(|&fid| unsafe { wait::try_wait(fid) })
        })
    });

/// Opens the fabric that the attributes name.
///
/// # Errors
/// [`Errno::Inval`] without a name; [`Errno::NoDev`] for an unknown provider; the provider's.
///
/// # Safety
/// `attr` is NULL or points to attributes whose texts are valid or NULL; `out` is NULL or may be
/// written.
pub(crate) unsafe fn open(
    attr: *const abi::FabricAttr,
    version: Option<Version>,
    out: *mut *mut FidFabric,
    context: *mut c_void,
) -> Result {
    let make = || {
        let mut info_c = info::EMPTY;
        info_c.fabric_attr = attr.cast_mut();
        // SAFETY: passed on from the caller; all other parts are NULL.
        let parsed = unsafe { info::read(&raw const info_c, Abi::V0) }?.info;
        // SAFETY: passed on from the caller.
        let attr = unsafe { required(attr) }?;
        if attr.name.is_null() || attr.prov_name.is_null() {
            return Err(Errno::Inval);
        }
        let version = version.unwrap_or(parsed.fabric_attr.api_version);
        let opened = adopt_info(parsed, &Hints::new())?.fabric();
        let inner = opened.map_err(|error| log_error(&error))?;
        Ok(Fabric { inner, version })
    };
    // SAFETY: passed on from the caller.
    unsafe { object::open(out, context, None, make) }
}

/// Completes an info that C has passed back, so that its provider can open the described object.
///
/// # Errors
/// [`Errno::NoDev`] for an unknown provider.
pub(crate) fn adopt_info(info: Info, hints: &Hints) -> Result<Info> {
    let adopted = registry().adopt(info, hints);
    adopted.map_err(|error| log_error(&error))
}
