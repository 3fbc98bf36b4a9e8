//! Discovery, and opening fabrics.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use selvedge::info::{MemTagFormat, Version};
use selvedge::param::Filter;
use selvedge::{Errno, Hints, Info, InfoFlags, Result};
use selvedge_abi as abi;
use selvedge_abi::{Abi, Fid};

use crate::pointer::{put, text};
use crate::process::registry;
use crate::status::{guarded_unit, log_error};
use crate::{fabric as object, info};

/// `fi_getinfo` of a version node.
///
/// # Safety
/// The caller follows fi_getinfo(3): `node` and `service` are texts or NULL, `hints` is NULL or has
/// the layout of `MINOR`, and `info_out` is NULL or may be written.
pub unsafe extern "C" fn getinfo<const MINOR: u8>(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const abi::Info,
    info_out: *mut *mut abi::Info,
) -> c_int {
    guarded_unit(|| {
        if info_out.is_null() {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let node = unsafe { text(node) }?;
        // SAFETY: passed on from the caller.
        let service = unsafe { text(service) }?;
        let (hints, handle) = if hints.is_null() {
            (Hints::anything(), ptr::null_mut())
        } else {
            // SAFETY: passed on from the caller.
            unsafe { read_hints(hints, layout::<MINOR>(version)) }?
        };
        let version = Version::from_raw(version);
        let infos = discover(version, node, service, flags, &hints)?;
        let first = info::allocate_list(&infos, handle)?;
        // SAFETY: passed on from the caller.
        unsafe { put(info_out, first) }
    })
}

/// The layout of a program's hints: the older of the layouts of its symbol version and of the API
/// version that it passes. A program that was built with older headers than the library that it was
/// linked to passes an older API version.
fn layout<const MINOR: u8>(version: u32) -> Abi {
    let Version { major, minor } = Version::from_raw(version);
    Abi::of_minor(MINOR).min(Abi::of_api(major.into(), minor.into()))
}

/// Reads the hints and their handle. Every info of the result has the same handle.
///
/// # Safety
/// As [`info::read`].
pub(crate) unsafe fn read_hints(hints: *const abi::Info, abi: Abi) -> Result<(Hints, *mut Fid)> {
    // SAFETY: passed on from the caller.
    let parsed = unsafe { info::read(hints, abi) }?;
    Ok((Hints::from(parsed.info), parsed.handle))
}

/// Queries the providers, and sets what programs of the requested version expect in the results.
///
/// # Errors
/// As [`selvedge::Registry::getinfo`].
pub(crate) fn discover(
    version: Version,
    node: Option<&str>,
    service: Option<&str>,
    flags: u64,
    hints: &Hints,
) -> Result<Vec<Info>> {
    let hints = match flags & InfoFlags::PROV_ATTR_ONLY.bits() {
        0 => hints,
        _ => &Hints::new(),
    };
    let flags = InfoFlags::from_bits(flags).ok_or(Errno::BadFlags)?;
    let found = registry().getinfo(version, node, service, flags, hints);
    let mut found = found.map_err(|error| log_error(&error))?;
    if version < FIRST_WITH_TAG_BITS {
        found.iter_mut().for_each(set_generic_tag_format);
    }
    let requested = hints.info().fabric_attr.prov_name.trim();
    found
        .iter_mut()
        .for_each(|info| set_requested_name(info, requested));
    Ok(found)
}

/// Sets the provider name of an info to the name in the program's hints, if that is an alias of the
/// provider. Programs compare the two names.
fn set_requested_name(info: &mut Info, requested: &str) {
    let is_one_name = !requested.contains([',', '^']);
    if is_one_name && !Filter::parse(requested).admits(&info.fabric_attr.prov_name) {
        requested.clone_into(&mut info.fabric_attr.prov_name);
    }
}

/// Before this version, the format of a tag without structure had every other bit set, and programs
/// count the bits.
const FIRST_WITH_TAG_BITS: Version = Version::new(2, 0);
const TAG_GENERIC: MemTagFormat = MemTagFormat(0xaaaa_aaaa_aaaa_aaaa);

fn set_generic_tag_format(info: &mut Info) {
    let format = &mut info.ep_attr.mem_tag_format;
    if *format == MemTagFormat::BITS {
        *format = TAG_GENERIC;
    }
}

/// `fi_freeinfo` of every version. Members that a program of an old layout lacks are NULL, because
/// `fi_allocinfo` allocates parts of the newest layout.
///
/// # Safety
/// `first` is NULL or the first info of a list that is not used any more, whose parts were allocated
/// by `malloc`.
pub unsafe extern "C" fn freeinfo(first: *mut abi::Info) {
    guarded_unit(|| {
        // SAFETY: passed on from the caller.
        unsafe { info::free(first) };
        Ok(())
    });
}

/// `fi_dupinfo` of a version node, `fi_allocinfo` with NULL.
///
/// # Safety
/// `source` is NULL or points to an info of this layout.
pub unsafe extern "C" fn dupinfo<const MINOR: u8>(source: *const abi::Info) -> *mut abi::Info {
    let mut copy = ptr::null_mut();
    guarded_unit(|| {
        copy = if source.is_null() {
            info::allocate_zeroed_info()?
        } else {
            // SAFETY: passed on from the caller.
            unsafe { info::copy(source, Abi::of_minor(MINOR)) }?
        };
        Ok(())
    });
    copy
}

/// `fi_fabric`.
///
/// # Safety
/// The caller follows fi_fabric(3).
pub unsafe extern "C" fn fabric(
    attr: *mut abi::FabricAttr,
    fabric: *mut *mut abi::FidFabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    guarded_unit(|| unsafe { object::open(attr, None, fabric, context) })
}

/// `fi_fabric` of programs whose attributes have no API version: they use 1.0.
///
/// # Safety
/// As [`fabric`].
pub unsafe extern "C" fn fabric_1_0(
    attr: *mut abi::FabricAttr,
    fabric: *mut *mut abi::FidFabric,
    context: *mut c_void,
) -> c_int {
    let version = Some(Version::new(1, 0));
    // SAFETY: passed on from the caller.
    guarded_unit(|| unsafe { object::open(attr, version, fabric, context) })
}

/// `fi_fabric2`.
///
/// # Safety
/// As [`fabric`], for the attributes of `info`.
pub unsafe extern "C" fn fabric2(
    info: *mut abi::Info,
    fabric: *mut *mut abi::FidFabric,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    guarded_unit(|| {
        if flags != 0 {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let attr = unsafe { crate::pointer::required(info) }?.fabric_attr;
        // SAFETY: passed on from the caller.
        unsafe { object::open(attr, None, fabric, context) }
    })
}
