//! The calls of an external provider: another libfabric has loaded this code for one of Selvedge's
//! providers, and forwards discovery and the opening of fabrics.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use selvedge::info::Version;
use selvedge::{Errno, Hints, InfoFlags};
use selvedge_abi as abi;
use selvedge_abi::Abi;

use super::discover::{discover, read_hints};
use crate::pointer::{put, required, text};
use crate::status::guarded_unit;
use crate::{fabric as object, info};

pub use crate::process::serve_other_library;

/// The version of the providers.
pub const VERSION: u32 = Version::API.as_raw();
/// The version of the interface. libfabric passes on no request of a later version.
pub const FI_VERSION: u32 = VERSION;

/// The arguments of fi_getinfo(3).
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are the man page's")]
pub struct Query {
    pub version: u32,
    pub node: *const c_char,
    pub service: *const c_char,
    pub flags: u64,
    pub hints: *const abi::Info,
}

/// libfabric's internal flag of a query by a provider that is a layer over others. Such a layer
/// needs interfaces between providers which Selvedge's providers do not have.
const CORE_PROVIDERS_ONLY: u64 = 1 << 59;

/// Discovery for one provider. The results have no provider name, because libfabric sets it.
///
/// # Safety
/// The caller follows fi_getinfo(3): the texts are texts or NULL, `hints` is NULL or has at least
/// the layout of the requested version, and `info_out` may be written.
pub unsafe fn getinfo(name: &CStr, query: &Query, info_out: *mut *mut abi::Info) -> c_int {
    guarded_unit(|| {
        if query.flags & CORE_PROVIDERS_ONLY != 0 {
            return Err(Errno::NoData);
        }
        // SAFETY: passed on from the caller.
        let node = unsafe { text(query.node) }?;
        // SAFETY: passed on from the caller.
        let service = unsafe { text(query.service) }?;
        let version = Version::from_raw(query.version);
        let (mut hints, mut handle) = (Hints::anything(), ptr::null_mut());
        if !query.hints.is_null() {
            let abi = Abi::of_api(version.major.into(), version.minor.into());
            // SAFETY: passed on from the caller.
            (hints, handle) = unsafe { read_hints(query.hints, abi) }?;
        }
        let name = name.to_str().map_err(|_| Errno::Inval)?;
        let hints = hints.edit(|info| name.clone_into(&mut info.fabric_attr.prov_name));
        let flags = query.flags & InfoFlags::all().bits();
        let mut infos = discover(version, node, service, flags, &hints)?;
        infos
            .iter_mut()
            .for_each(|info| info.fabric_attr.prov_name.clear());
        let first = info::allocate_list(&infos, handle)?;
        // SAFETY: passed on from the caller.
        unsafe { put(info_out, first) }
    })
}

/// Opens a fabric of one provider.
///
/// # Safety
/// The caller follows fi_fabric(3).
pub unsafe fn fabric(
    name: &CStr,
    attr: *const abi::FabricAttr,
    fabric: *mut *mut abi::FidFabric,
    context: *mut c_void,
) -> c_int {
    guarded_unit(|| {
        // SAFETY: passed on from the caller.
        let mut attr = *unsafe { required(attr) }?;
        attr.prov_name = name.as_ptr().cast_mut();
        // SAFETY: passed on from the caller; the name is a text.
        unsafe { object::open(&raw const attr, None, fabric, context) }
    })
}
