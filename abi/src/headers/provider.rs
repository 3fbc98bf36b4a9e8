//! `struct fi_provider`, which an external provider gives to libfabric: fi_provider(3).

use std::ffi::{c_char, c_int, c_void};

use super::info::{FabricAttr, Info};
use super::objects::FidFabric;
use crate::declare::structs::c_structs;

c_structs! {
    /// `struct fi_provider`.
    Provider = 72 {
        version: u32,
        fi_version: u32,
        /// Memory for libfabric.
        context: [*mut c_void; 4],
        name: *const c_char,
        getinfo: Option<GetInfo>,
        fabric: Option<OpenFabric>,
        cleanup: Option<extern "C" fn()>,
    }
}

/// `getinfo` of a provider, with the arguments of fi_getinfo(3).
pub type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;

/// `fabric` of a provider, with the arguments of fi_fabric(3).
pub type OpenFabric =
    unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;
