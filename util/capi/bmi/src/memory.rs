//! Memory that BMI allocates, and the buffers of unexpected messages.
//!
//! A table keeps the memory that a method has allocated. All other memory is the C library's, which
//! a program may also free with free(3).

#![expect(unsafe_code, reason = "the C interface")]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, PoisonError};

use selvedge_bmi::support::heap;
use selvedge_bmi::{Addr, Memory, process};

use crate::status::guarded;

/// The memory that methods have allocated, by address.
static METHOD_MEMORY: LazyLock<Mutex<HashMap<usize, Memory>>> = LazyLock::new(Mutex::default);

#[unsafe(no_mangle)]
extern "C" fn BMI_memalloc(addr: i64, size: i64, _send_recv: c_int) -> *mut c_void {
    let mut base = null_mut();
    guarded(|| {
        let allocated = process::with(|bmi| {
            let len = usize::try_from(size).ok()?;
            bmi.memalloc(Addr(addr), len)
        })?;
        base = allocated.map_or(null_mut(), into_pointer);
        Ok(0)
    });
    base
}

fn into_pointer(memory: Memory) -> *mut c_void {
    match memory.into_heap() {
        Ok(base) => base.as_ptr().cast(),
        Err(memory) => {
            let base = memory.base().as_ptr();
            let mut table = METHOD_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
            table.insert(base.addr(), memory);
            base.cast()
        }
    }
}

/// # Safety
/// The buffer is null, or was returned by this library, was not freed, and is not used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_memfree(
    _addr: i64,
    buffer: *mut c_void,
    _size: i64,
    _send_recv: c_int,
) -> c_int {
    guarded(|| {
        let mut table = METHOD_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = table.remove(&buffer.addr());
        drop(table);
        if memory.is_none() {
            // SAFETY: the caller promises that this library has returned the buffer. No method has
            // allocated the buffer, so the C library has.
            unsafe { heap::free(buffer.cast()) };
        }
        Ok(0)
    })
}

/// # Safety
/// As `BMI_memfree`.
#[unsafe(no_mangle)]
unsafe extern "C" fn BMI_unexpected_free(addr: i64, buffer: *mut c_void) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { BMI_memfree(addr, buffer, 0, 0) }
}
