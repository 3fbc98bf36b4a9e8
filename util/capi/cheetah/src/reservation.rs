//! `cheetah_parcel`: reserved memory in which a message is packed in place.

#![expect(unsafe_code, reason = "pointers of C")]

use std::ffi::{c_int, c_void};
use std::ptr;

use selvedge_cheetah::Error;
use selvedge_cheetah::core::Reservation;

use crate::lifecycle::open;
use crate::message::port;
use crate::status::{Context, check_span, guarded, index_of};

/// # Safety
/// `context` is open; `reservation` and `room` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_reserve(
    context: *mut Context,
    to: c_int,
    len: usize,
    reservation: *mut *mut Reservation,
    room: *mut *mut c_void,
) -> c_int {
    guarded(|| {
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        check_span("reserve", ptr::dangling::<u8>(), len)?;
        let mut reserved = Box::new(core.reserve(index_of("context", to)?, len)?);
        let base = reserved.bytes_mut().as_mut_ptr();
        // SAFETY: the caller's promise.
        unsafe { room.write(base.cast()) };
        // SAFETY: the caller's promise.
        unsafe { reservation.write(Box::into_raw(reserved)) };
        Ok(0)
    })
}

/// # Safety
/// `context` is open; `reservation` was reserved, and is not used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_commit(
    context: *mut Context,
    reservation: *mut Reservation,
    kind: c_int,
    id: c_int,
    tag: c_int,
) -> c_int {
    guarded(|| {
        if reservation.is_null() {
            return Err(Error::Garbled(
                "cheetah_commit: the parcel is NULL; pass a parcel from cheetah_reserve".to_owned(),
            ));
        }
        // SAFETY: allocated by `cheetah_reserve`, and consumed once.
        let reservation = unsafe { Box::from_raw(reservation) };
        // SAFETY: the caller's promise.
        let core = &unsafe { open(context) }?.core;
        core.commit(port(core, kind, id, tag)?, *reservation)?;
        Ok(0)
    })
}

/// # Safety
/// `context` is open; `reservation` is null or was reserved, and is not used any more.
#[unsafe(no_mangle)]
unsafe extern "C" fn cheetah_abandon(context: *mut Context, reservation: *mut Reservation) {
    guarded(|| {
        if !reservation.is_null() {
            // SAFETY: allocated by `cheetah_reserve`, and consumed once.
            let reservation = unsafe { Box::from_raw(reservation) };
            // SAFETY: the caller's promise.
            unsafe { open(context) }?.core.release(*reservation);
        }
        Ok(0)
    });
}
