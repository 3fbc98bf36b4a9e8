//! Fabrics: `struct fid_fabric`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use selvedge::info::Version;
use selvedge::{Errno, Hints, Result};
use selvedge_abi as abi;
use selvedge_abi::{Abi, FidFabric, Ops, OpsFabric, fclass};

use crate::domain::Domain;
use crate::info;
use crate::object::{self, Table, class, open_child};
use crate::pep::Pep;
use crate::pointer::{array, required};
use crate::process::adopt_info;
use crate::queue::eq::Eq;
use crate::queue::poll;
use crate::queue::wait::WaitSet;
use crate::status::{error_status, guarded_unit, log_error};

/// The object behind the handle of a fabric.
pub(crate) struct Fabric {
    pub(crate) inner: Arc<dyn selvedge::Fabric>,
    /// The API version that the program uses.
    pub(crate) version: Version,
}

impl Fabric {
    /// # Safety
    /// `info` is NULL or an info of the fabric's layout.
    unsafe fn domain(&self, info: *const abi::Info) -> Result<Domain> {
        // SAFETY: passed on from the caller.
        let parsed = unsafe { info::read(info, self.abi()) }?;
        // SAFETY: by fi_domain(3), `domain_attr.threading` is the program's promise for all objects
        // of the domain.
        let hints = unsafe { Hints::new().promise_threading(parsed.threading) };
        let info = adopt_info(parsed.info, &hints)?;
        let inner = self
            .inner
            .domain(&info)
            .map_err(|error| log_error(&error))?;
        Ok(Domain::new(inner, &info, hints, self.version, self.abi()))
    }

    /// # Safety
    /// As [`Self::domain`].
    unsafe fn passive_ep(&self, info: *const abi::Info) -> Result<Pep> {
        // SAFETY: passed on from the caller.
        let parsed = unsafe { info::read(info, self.abi()) }?.info;
        Ok(Pep::new(&self.inner, adopt_info(parsed, &Hints::new())?))
    }

    /// The layout of structures that the program passes.
    fn abi(&self) -> Abi {
        Abi::of_api(self.version.major.into(), self.version.minor.into())
    }
}

class! {
    Fabric, FidFabric, FID, |_| fclass::FABRIC;
    tables |_| ops: &FABRIC;
    members |fabric| api_version: fabric.version.as_raw()
}

static FID: Table<Ops, Fabric> = object::ops();
static FABRIC: Table<OpsFabric, Fabric> = Table::<OpsFabric, Fabric>::empty()
    // fi_domain(3)
    .domain(|fabric, info, out, context| open_child!(fabric, out, context, fabric.domain(info)))
    // fi_domain2(3)
    .domain2(|fabric, info, out, flags, context| match flags {
        0 => open_child!(fabric, out, context, fabric.domain(info)),
        _ => error_status(Errno::BadFlags),
    })
    // fi_passive_ep(3)
    .passive_ep(|fabric, info, out, context| {
        open_child!(fabric, out, context, fabric.passive_ep(info))
    })
    // fi_eq_open(3)
    .eq_open(|fabric, attr, out, context| {
        let Fabric { inner, version } = &**fabric;
        open_child!(fabric, out, context, Eq::open(&**inner, *version, attr))
    })
    // fi_wait_open(3)
    .wait_open(|fabric, attr, out| open_child!(fabric, out, ptr::null_mut(), WaitSet::open(attr)))
    .trywait(|_, fids, count| {
        guarded_unit(|| {
            let count = usize::try_from(count).map_err(|_| Errno::Inval)?;
            // SAFETY: the C caller passes handles, as fi_trywait(3) requires, here and below.
            let fids = unsafe { array(fids, count) }?;
            let mut fids = fids.iter();
            // SAFETY: as above.
            fids.try_for_each(|&fid| unsafe { poll::try_wait(fid) })
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
