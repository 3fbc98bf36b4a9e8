//! Parameters for C: those of the object model and its providers in one list with those that a
//! provider of libfabric declares by itself.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use selvedge::param::{Kind, flag, integer, size};
use selvedge::{Errno, Result};
use selvedge_abi::{Param, number};

use crate::heap::{self, string};
use crate::log_c::{constant, provider_name};
use crate::pointer::{put, text};
use crate::process::registry;

/// A parameter that was declared through `fi_param_define`.
#[derive(Clone, Debug)]
struct Declared {
    name: String,
    kind: u32,
    help: String,
}

static DECLARED: Mutex<Vec<Declared>> = Mutex::new(Vec::new());

/// Every parameter, those of the object model first.
fn all() -> Vec<Declared> {
    let params = registry().params();
    let own = params.specs().map(|spec| Declared {
        name: spec.name.to_owned(),
        kind: match spec.kind {
            Kind::Flag { .. } => number::param::BOOL,
            Kind::Int { .. } => number::param::INT,
            Kind::Size { .. } => number::param::SIZE_T,
            _ => number::param::STRING,
        },
        help: spec.help.to_owned(),
    });
    let declared = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
    own.chain(declared.iter().cloned()).collect()
}

/// Writes a list of all parameters, which ends with an entry without a name, and its length.
///
/// # Errors
/// [`Errno::Inval`] for NULL; [`Errno::NoMem`].
///
/// # Safety
/// Both are NULL or may be written.
pub(crate) unsafe fn list(params: *mut *mut Param, count: *mut c_int) -> Result {
    if params.is_null() || count.is_null() {
        return Err(Errno::Inval);
    }
    let (all, values) = (all(), registry().params());
    let mut entries = Vec::with_capacity(all.len() + 1);
    for declared in &all {
        entries.push(Param {
            name: string(&declared.name)?,
            param_type: declared.kind,
            help_string: string(&declared.help)?,
            value: string(values.raw(&declared.name).unwrap_or_default())?,
        });
    }
    entries.push(END);
    let at = heap::array(&entries)?;
    // SAFETY: passed on from the caller.
    unsafe { put(params, at) }?;
    // SAFETY: passed on from the caller.
    unsafe { put(count, c_int::try_from(all.len()).unwrap_or(c_int::MAX)) }
}

const END: Param = Param {
    name: ptr::null(),
    param_type: number::param::STRING,
    help_string: ptr::null(),
    value: ptr::null(),
};

/// Frees a list.
///
/// # Safety
/// `params` is NULL or came from [`list`], and is not used any more.
pub(crate) unsafe fn free(params: *mut Param) {
    let mut at = params;
    // SAFETY: a list ends with an entry without a name.
    while let Some(entry) = unsafe { at.as_ref() }.filter(|entry| !entry.name.is_null()) {
        for text in [entry.name, entry.help_string, entry.value] {
            // SAFETY: `list` has allocated it.
            unsafe { heap::free(text.cast_mut()) };
        }
        at = at.wrapping_add(1);
    }
    // SAFETY: as above.
    unsafe { heap::free(params) };
}

/// Declares a parameter.
///
/// # Errors
/// [`Errno::Inval`] for a name that is NULL or not UTF-8.
///
/// # Safety
/// `provider` is NULL or a provider of libfabric; `name` is NULL or a string.
pub(crate) unsafe fn define(
    provider: *const c_void,
    name: *const c_char,
    kind: u32,
    help: String,
) -> Result {
    // SAFETY: passed on from the caller.
    let name = unsafe { variable(provider, name) }?;
    let mut declared = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
    declared.retain(|own| own.name != name);
    declared.push(Declared { name, kind, help });
    Ok(())
}

/// Reads a parameter.
///
/// # Errors
/// [`Errno::NoEnt`] for a parameter that was not declared; [`Errno::NoData`] for one that is not
/// set; [`Errno::Inval`] for a value that does not fit its type.
///
/// # Safety
/// As [`define`]; `value` is NULL or has room for the type of the parameter.
pub(crate) unsafe fn get(
    provider: *const c_void,
    name: *const c_char,
    value: *mut c_void,
) -> Result {
    // SAFETY: passed on from the caller.
    let name = unsafe { variable(provider, name) }?;
    let declared = all().into_iter().find(|own| own.name == name);
    let kind = declared.ok_or(Errno::NoEnt)?.kind;
    let params = registry().params();
    let set = params.raw(&name).ok_or(Errno::NoData)?;
    match kind {
        number::param::STRING => {
            let kept: &'static str = Box::leak(set.to_owned().into_boxed_str());
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<*const c_char>(), constant(kept)) }
        }
        number::param::BOOL => {
            let is_set = flag(set).ok_or(Errno::Inval)?;
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<c_int>(), is_set.into()) }
        }
        number::param::INT => {
            let number = integer(set).and_then(|number| number.try_into().ok());
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<c_int>(), number.ok_or(Errno::Inval)?) }
        }
        _ => {
            let number = size(set).ok_or(Errno::Inval)?;
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<usize>(), number) }
        }
    }
}

/// The name of a parameter's variable, `FI_<PROVIDER>_<NAME>`; the core's have no provider.
///
/// # Safety
/// As [`define`].
unsafe fn variable(provider: *const c_void, name: *const c_char) -> Result<String> {
    // SAFETY: passed on from the caller.
    let name = unsafe { text(name) }?.ok_or(Errno::Inval)?;
    // SAFETY: passed on from the caller.
    let variable = match unsafe { provider_name(provider) } {
        Some("core") | None => format!("FI_{name}"),
        Some(provider) => format!("FI_{provider}_{name}"),
    };
    Ok(variable.to_ascii_uppercase())
}
