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
/// As fi_getinfo(3) has it: texts or NULL; hints of this layout or NULL; where the list goes.
pub(super) unsafe extern "C" fn getinfo<const MINOR: u8>(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const abi::Info,
    found: *mut *mut abi::Info,
) -> c_int {
    guarded_unit(|| {
        if found.is_null() {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let node = unsafe { text(node) }?;
        // SAFETY: passed on from the caller.
        let service = unsafe { text(service) }?;
        let (hints, handle) = match hints.is_null() {
            true => (Hints::anything(), ptr::null_mut()),
            // SAFETY: passed on from the caller.
            false => unsafe { hints_of(hints, layout::<MINOR>(version)) }?,
        };
        let version = Version::from_raw(version);
        let all = discover(version, node, service, flags, &hints)?;
        let first = info::list(&all, handle)?;
        // SAFETY: passed on from the caller.
        unsafe { put(found, first) }
    })
}

/// What of hints is looked at: what the program was linked to know, but no more than the API that it
/// asks for has. A program that was built with older headers than the library's asks for an older
/// API.
fn layout<const MINOR: u8>(version: u32) -> Abi {
    let Version { major, minor } = Version::from_raw(version);
    Abi::of_minor(MINOR).min(Abi::of_api(major.into(), minor.into()))
}

/// What is asked for, and the handle that goes with it: whatever is found has it, too.
///
/// # Safety
/// As [`info::read`].
unsafe fn hints_of(hints: *const abi::Info, abi: Abi) -> Result<(Hints, *mut Fid)> {
    // SAFETY: passed on from the caller.
    let given = unsafe { info::read(hints, abi) }?;
    Ok((Hints::from(given.info), given.handle))
}

fn discover(
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
        found.iter_mut().for_each(with_generic_tags);
    }
    let requested = hints.info().fabric_attr.prov_name.trim();
    found.iter_mut().for_each(|info| with_name(info, requested));
    Ok(found)
}

/// Programs compare names: one that asked for one name, for which another provider does the work,
/// finds that name again.
fn with_name(info: &mut Info, requested: &str) {
    let is_one_name = !requested.contains([',', '^']);
    if is_one_name && !Filter::parse(requested).admits(&info.fabric_attr.prov_name) {
        requested.clone_into(&mut info.fabric_attr.prov_name);
    }
}

/// Before this version, a tag without structure had every other bit set in its format, which
/// programs count.
const FIRST_WITH_TAG_BITS: Version = Version::new(2, 0);
const TAG_GENERIC: MemTagFormat = MemTagFormat(0xaaaa_aaaa_aaaa_aaaa);

fn with_generic_tags(info: &mut Info) {
    let format = &mut info.ep_attr.mem_tag_format;
    if *format == MemTagFormat::BITS {
        *format = TAG_GENERIC;
    }
}

/// `fi_freeinfo` of every version: parts that a program of an old layout lacks are NULL, because
/// `fi_allocinfo` gives it whole ones.
///
/// # Safety
/// `at` is NULL or the first of a list that nobody uses any more, of parts that `malloc` has made.
pub(super) unsafe extern "C" fn freeinfo(at: *mut abi::Info) {
    guarded_unit(|| {
        // SAFETY: passed on from the caller.
        unsafe { info::free(at) };
        Ok(())
    });
}

/// `fi_dupinfo` of a version node, `fi_allocinfo` with NULL.
///
/// # Safety
/// `at` is NULL or names an info of this layout.
pub(super) unsafe extern "C" fn dupinfo<const MINOR: u8>(at: *const abi::Info) -> *mut abi::Info {
    let mut copy = ptr::null_mut();
    guarded_unit(|| {
        copy = match at.is_null() {
            true => info::fresh()?,
            // SAFETY: passed on from the caller.
            false => unsafe { info::copy(at, Abi::of_minor(MINOR)) }?,
        };
        Ok(())
    });
    copy
}

/// `fi_fabric`.
///
/// # Safety
/// The caller follows fi_fabric(3).
pub(super) unsafe extern "C" fn fabric(
    attr: *mut abi::FabricAttr,
    fabric: *mut *mut abi::FidFabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: passed on from the caller.
    guarded_unit(|| unsafe { object::open(attr, None, fabric, context) })
}

/// `fi_fabric` of programs whose attributes have no version: theirs is 1.0.
///
/// # Safety
/// As [`fabric`].
pub(super) unsafe extern "C" fn fabric_1_0(
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
pub(super) unsafe extern "C" fn fabric2(
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
