//! Registered memory: `struct fid_mr`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::mr::Attr;
use selvedge::{Errno, IovMut, MemoryRegion, MrAccess, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidMr, Iovec, MrAttr, Ops, fclass, number};

use crate::answer::{done, told};
use crate::cntr::Cntr;
use crate::domain::Domain;
use crate::ep::Ep;
use crate::given::{beginning, given, list, put};
use crate::object::{self, Class, User, argument, close, of_own_fid};

/// What stands behind a region.
pub(crate) struct Mr {
    own: Arc<dyn MemoryRegion>,
    base: u64,
    /// The counters that it is bound to.
    counters: Mutex<Vec<User>>,
    _domain: User,
}

// SAFETY: `fid_mr` begins with its fid, and has no table behind it.
unsafe impl Class for Mr {
    type Handle = FidMr;
    const FCLASS: usize = fclass::MR;

    fn ops() -> &'static Ops {
        &FID
    }

    fn handle(&self, fid: Fid) -> FidMr {
        FidMr {
            fid,
            mem_desc: ptr::without_provenance_mut(self.own.desc().0),
            key: self.own.key(),
        }
    }

    fn closed(fid: Fid) -> FidMr {
        FidMr {
            fid,
            mem_desc: ptr::null_mut(),
            key: u64::MAX,
        }
    }
}

static FID: Ops = Ops {
    close: Some(close::<Mr>),
    bind: Some(bind),
    control: Some(control),
    ..Ops::refusing::<{ libc::ENOSYS }>()
};

/// What a registration asks for.
struct Asked {
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

/// # Safety
/// As fi_mr_reg(3) has it.
pub(crate) unsafe extern "C" fn reg(
    fid: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    let piece = IovMut::from_raw(buf.cast_mut(), len);
    let asked = Asked {
        access,
        offset,
        key,
        flags,
        context,
    };
    // SAFETY: passed on from the caller.
    done(|| unsafe { register(fid, &[piece], &asked, mr) })
}

/// # Safety
/// As fi_mr_regv(3) has it.
pub(crate) unsafe extern "C" fn regv(
    fid: *mut Fid,
    iov: *const Iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: passed on from the caller; both describe memory in the same way.
        let region = unsafe { list(iov.cast::<IovMut>(), count) }?;
        let asked = Asked {
            access,
            offset,
            key,
            flags,
            context,
        };
        // SAFETY: passed on from the caller.
        unsafe { register(fid, region, &asked, mr) }
    })
}

/// Bytes of `struct fi_mr_attr` that every version has. What is behind them is about devices.
const ATTR_1_0: usize = 64;

/// # Safety
/// As fi_mr_regattr(3) has it.
pub(crate) unsafe extern "C" fn regattr(
    fid: *mut Fid,
    attr: *const MrAttr,
    flags: u64,
    mr: *mut *mut FidMr,
) -> c_int {
    done(|| {
        // SAFETY: passed on from the caller.
        let attr = unsafe { beginning(attr, ATTR_1_0) }?;
        // SAFETY: passed on from the caller; both describe memory in the same way.
        let region = unsafe { list(attr.mr_iov.cast::<IovMut>(), attr.iov_count) }?;
        let asked = Asked {
            access: attr.access,
            offset: attr.offset,
            key: attr.requested_key,
            flags,
            context: attr.context,
        };
        // SAFETY: passed on from the caller.
        unsafe { register(fid, region, &asked, mr) }
    })
}

/// Every region may have counters, from its birth on: to announce them changes nothing.
const HARMLESS: u64 = selvedge::Caps::RMA_EVENT.bits();

/// # Safety
/// As fi_mr(3) has it.
unsafe fn register(fid: *mut Fid, region: &[IovMut], asked: &Asked, mr: *mut *mut FidMr) -> Result {
    // SAFETY: passed on from the caller.
    let domain: &Domain = unsafe { of_own_fid(fid) };
    if asked.flags & !HARMLESS != 0 {
        return Err(Errno::BadFlags);
    }
    if mr.is_null() || region.is_empty() {
        return Err(Errno::Inval);
    }
    let mut attr = Attr::default();
    attr.access = MrAccess::from_bits(asked.access).ok_or(Errno::Inval)?;
    attr.requested_key = asked.key;
    attr.offset = asked.offset;
    // SAFETY: passed on from the caller: the memory stays until the region is closed, and whoever
    // touches it meanwhile is C.
    let own = unsafe { domain.own.reg(region, &attr) };
    let own = own.map_err(|error| told(&error))?;
    let handle = object::open(
        Mr {
            own,
            base: region[0].base.addr() as u64,
            counters: Mutex::default(),
            _domain: domain.one_more_user(),
        },
        asked.context,
    );
    // SAFETY: passed on from the caller.
    unsafe { put(mr, handle) }
}

/// Regions belong to their domain, so an endpoint has nothing to add. A counter counts what peers do
/// with the region.
///
/// # Safety
/// Both are handles.
unsafe extern "C" fn bind(mr: *mut Fid, fid: *mut Fid, flags: u64) -> c_int {
    // SAFETY: passed on from the caller.
    let mr: &Mr = unsafe { of_own_fid(mr) };
    done(|| {
        // SAFETY: passed on from the caller.
        match unsafe { given(fid) }?.fclass {
            // SAFETY: passed on from the caller.
            fclass::CNTR => mr.bind_counter(unsafe { argument(fid) }?, flags),
            // SAFETY: passed on from the caller.
            _ if unsafe { Ep::any(fid) }.is_err() => Err(Errno::Inval),
            _ if flags != 0 => Err(Errno::BadFlags),
            _ => Ok(()),
        }
    })
}

/// # Safety
/// As fi_control(3) has it.
unsafe extern "C" fn control(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: passed on from the caller.
    let mr: &Mr = unsafe { of_own_fid(fid) };
    done(|| match command {
        number::control::ENABLE | number::control::REFRESH => Ok(()),
        // SAFETY: passed on from the caller.
        number::control::GET_RAW_MR => unsafe { mr.raw(arg.cast()) },
        _ => Err(Errno::NoSys),
    })
}

impl Mr {
    fn bind_counter(&self, cntr: &Cntr, flags: u64) -> Result {
        let what = MrAccess::from_bits(flags).ok_or(Errno::BadFlags)?;
        let bound = self.own.bind_counter(&cntr.own, what);
        bound.map_err(|error| told(&error))?;
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.push(cntr.one_more_user());
        Ok(())
    }

    /// The key as bytes.
    ///
    /// # Safety
    /// `at` is NULL or names a request for them.
    unsafe fn raw(&self, at: *const abi::MrRawAttr) -> Result {
        // SAFETY: passed on from the caller.
        let asked = unsafe { given(at) }?;
        let key = self.own.key().to_ne_bytes();
        // SAFETY: passed on from the caller.
        unsafe { crate::given::fill(asked.raw_key, asked.key_size, &key) }?;
        // SAFETY: passed on from the caller.
        unsafe { put(asked.base_addr, self.base) }
    }
}
