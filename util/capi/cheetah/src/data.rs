//! Puts, gets and special memory.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::PoisonError;

use selvedge_cheetah::{BellName, Error};

use crate::lifecycle::open;
use crate::status::{Context, check_span, guarded, index_of};

fn bell(bell: *mut c_int) -> BellName {
    BellName::at(bell.expose_provenance())
}

/// # Safety
/// `context` is open; the bytes and bells are as `Core::put` requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_put(
    context: *mut Context,
    to: c_int,
    remote: *mut c_void,
    local: *const c_void,
    len: usize,
    local_bell: *mut c_int,
    remote_bell: *mut c_int,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        check_span("put", local, len)?;
        let (to, remote) = (index_of("context", to)?, remote.expose_provenance() as u64);
        let (local, bells) = (local.cast(), [bell(local_bell), bell(remote_bell)]);
        // SAFETY: the caller's promise.
        unsafe { core.put(to, remote, (local, len), bells[0], bells[1]) }?;
        Ok(0)
    })
}

/// # Safety
/// `context` is open; the buffer and bells are as `Core::get` requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_get(
    context: *mut Context,
    target: c_int,
    remote: *const c_void,
    local: *mut c_void,
    len: usize,
    local_bell: *mut c_int,
    remote_bell: *mut c_int,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        check_span("get", local.cast_const(), len)?;
        let (target, remote) = (
            index_of("context", target)?,
            remote.expose_provenance() as u64,
        );
        let (local, bells) = (local.cast(), [bell(local_bell), bell(remote_bell)]);
        // SAFETY: the caller's promise.
        unsafe { core.get(target, remote, (local, len), bells[0], bells[1]) }?;
        Ok(0)
    })
}

/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_allocate(context: *mut Context, len: usize) -> *mut c_void {
    let mut memory = ptr::null_mut();
    guarded(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { open(context) }?;
        check_span("special memory", ptr::dangling::<u8>(), len)?;
        let region = context.core.allocate(len)?;
        memory = region.base().cast();
        let mut special = context
            .special
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        special.push(region);
        Ok(0)
    });
    memory
}

/// # Safety
/// `context` is open; `memory` is null or was allocated, and is not used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_free(context: *mut Context, memory: *mut c_void) -> c_int {
    guarded(|| {
        if memory.is_null() {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        let context = unsafe { open(context) }?;
        let mut special = context
            .special
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let index = special
            .iter()
            .position(|region| region.base().cast() == memory);
        let index = index.ok_or_else(|| {
            Error::Garbled(format!(
                "cheetah_free of {memory:?}: the memory is not from cheetah_allocate"
            ))
        })?;
        context.core.free(special.swap_remove(index));
        Ok(0)
    })
}
