//! Parameters for C: one list of the parameters of the object model and its providers, and of those
//! that a provider of libfabric declares through `fi_param_define`.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use selvedge::param::{Kind, flag, integer, size};
use selvedge::{Errno, Result};
use selvedge_abi::{Param, number};

use crate::export::log_c::{constant, provider_name};
use crate::heap::{self, copy_str};
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
fn all_params() -> Vec<Declared> {
    let params = registry().params();
    let built_in = params.specs().map(|spec| Declared {
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
    built_in.chain(declared.iter().cloned()).collect()
}

/// Writes a list of all parameters, which ends with an entry without a name, and its length.
///
/// # Errors
/// [`Errno::Inval`] for NULL; [`Errno::NoMem`].
///
/// # Safety
/// `params` and `count` are NULL or may be written.
pub(crate) unsafe fn list_params(params: *mut *mut Param, count: *mut c_int) -> Result {
    if params.is_null() || count.is_null() {
        return Err(Errno::Inval);
    }
    let (declarations, values) = (all_params(), registry().params());
    let mut entries = Vec::with_capacity(declarations.len() + 1);
    for declared in &declarations {
        entries.push(Param {
            name: copy_str(&declared.name)?,
            param_type: declared.kind,
            help_string: copy_str(&declared.help)?,
            value: copy_str(values.raw(&declared.name).unwrap_or_default())?,
        });
    }
    entries.push(END);
    let first = heap::copy_array(&entries)?;
    // SAFETY: passed on from the caller.
    unsafe { put(params, first) }?;
    // SAFETY: passed on from the caller.
    unsafe {
        put(
            count,
            c_int::try_from(declarations.len()).unwrap_or(c_int::MAX),
        )
    }
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
/// `params` is NULL or came from [`list_params`], and is not used any more.
pub(crate) unsafe fn free(params: *mut Param) {
    let mut entry_ptr = params;
    // SAFETY: a list ends with an entry without a name.
    while let Some(entry) = unsafe { entry_ptr.as_ref() }.filter(|entry| !entry.name.is_null()) {
        for text in [entry.name, entry.help_string, entry.value] {
            // SAFETY: `list_params` has allocated the text.
            unsafe { heap::free(text.cast_mut()) };
        }
        entry_ptr = entry_ptr.wrapping_add(1);
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
    declared.retain(|other| other.name != name);
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
    let declared = all_params().into_iter().find(|param| param.name == name);
    let kind = declared.ok_or(Errno::NoEnt)?.kind;
    let params = registry().params();
    let text = params.raw(&name).ok_or(Errno::NoData)?;
    match kind {
        number::param::STRING => {
            let leaked: &'static str = Box::leak(text.to_owned().into_boxed_str());
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<*const c_char>(), constant(leaked)) }
        }
        number::param::BOOL => {
            let is_set = flag(text).ok_or(Errno::Inval)?;
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<c_int>(), is_set.into()) }
        }
        number::param::INT => {
            let number = integer(text).and_then(|number| number.try_into().ok());
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<c_int>(), number.ok_or(Errno::Inval)?) }
        }
        _ => {
            let number = size(text).ok_or(Errno::Inval)?;
            // SAFETY: passed on from the caller.
            unsafe { put(value.cast::<usize>(), number) }
        }
    }
}

/// The name of a parameter's variable: `FI_<PROVIDER>_<NAME>`, or `FI_<NAME>` for the core.
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
