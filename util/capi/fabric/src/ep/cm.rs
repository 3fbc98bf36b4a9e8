//! Names and connections of endpoints: `struct fi_ops_cm`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use selvedge::{Address, Errno, Result};
use selvedge_abi::{Fid, FidEp, OpsCm};

use super::Ep;
use crate::addr;
use crate::answer::done;
use crate::given::{fill, list};
use crate::object::{of_own_fid, this};

pub(super) static CM: OpsCm = OpsCm {
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(getpeer),
    connect: Some(connect),
    accept: Some(accept),
    shutdown: Some(shutdown),
    join: Some(crate::mc::join),
    ..OpsCm::refusing::<{ libc::ENOSYS }>()
};
pub(super) static CLOSED: OpsCm = OpsCm::refusing::<{ libc::EBADF }>();

/// # Safety
/// As fi_setname(3) has it.
unsafe extern "C" fn setname(fid: *mut Fid, at: *mut c_void, len: usize) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { of_own_fid(fid) };
    done(|| {
        // SAFETY: passed on from the caller.
        let bytes = unsafe { list(at.cast::<u8>(), len) }?;
        let addr = addr::decode(bytes, ep.shared.format)?;
        let mut draft = ep.shared.draft();
        if ep.shared.live.get().is_some() {
            return Err(Errno::OpBadState);
        }
        draft.info.src_addr = Some(addr);
        Ok(())
    })
}

/// # Safety
/// As fi_getname(3) has it.
pub(super) unsafe extern "C" fn getname(fid: *mut Fid, at: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { of_own_fid(fid) };
    done(|| {
        let addr = match (&ep.half, ep.shared.live.get()) {
            (Some(half), _) => half.address()?,
            (None, Some(live)) => live.address()?,
            (None, None) => {
                let addr = ep.shared.draft().info.src_addr.clone();
                let is_settled = |addr: &Address| addr.as_str().is_none_or(is_name);
                addr.filter(is_settled).ok_or(Errno::AddrNotAvail)?
            }
        };
        // SAFETY: passed on from the caller.
        unsafe { fill(at.cast(), len, &addr::encode(&addr)) }
    })
}

/// Whether an address of discovery's is a name: shm's has a `*` where the endpoint gets its name when it
/// is enabled.
fn is_name(text: &str) -> bool {
    !text.contains('*')
}

/// # Safety
/// As fi_getpeer(3) has it.
unsafe extern "C" fn getpeer(ep: *mut FidEp, at: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    done(|| {
        let peer = ep.live()?.cm().ok_or(Errno::NoSys)?.peer()?;
        // SAFETY: passed on from the caller.
        unsafe { fill(at.cast(), len, &addr::encode(&peer)) }
    })
}

/// Connecting and accepting enable an endpoint that is not.
///
/// # Safety
/// As fi_connect(3) has it.
unsafe extern "C" fn connect(
    ep: *mut FidEp,
    at: *const c_void,
    param: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let own: &Ep = unsafe { this(ep) };
    done(|| {
        // SAFETY: passed on from the caller.
        let data = unsafe { private_data(param, len) }?;
        let live = own.enable(ep.cast())?;
        let cm = live.cm().ok_or(Errno::NoSys)?;
        let to = match at.is_null() {
            true => own.shared.draft().info.dest_addr.clone(),
            // SAFETY: passed on from the caller.
            false => Some(unsafe { addr::at(at, own.shared.format) }?.0),
        };
        cm.connect(&to.ok_or(Errno::Inval)?, data)
    })
}

/// # Safety
/// `param` is NULL or names `len` bytes.
unsafe fn private_data<'a>(param: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len > super::CM_DATA_SIZE {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller.
    unsafe { list(param.cast::<u8>(), len) }
}

/// # Safety
/// As fi_accept(3) has it.
unsafe extern "C" fn accept(ep: *mut FidEp, param: *const c_void, len: usize) -> c_int {
    // SAFETY: passed on from the caller.
    let own: &Ep = unsafe { this(ep) };
    done(|| {
        // SAFETY: passed on from the caller.
        let data = unsafe { private_data(param, len) }?;
        let live = own.enable(ep.cast())?;
        live.cm().ok_or(Errno::NoSys)?.accept(data)
    })
}

/// # Safety
/// `ep` is an endpoint.
unsafe extern "C" fn shutdown(ep: *mut FidEp, flags: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { this(ep) };
    done(|| {
        if flags != 0 {
            return Err(Errno::BadFlags);
        }
        ep.live()?.cm().ok_or(Errno::NoSys)?.shutdown()
    })
}
