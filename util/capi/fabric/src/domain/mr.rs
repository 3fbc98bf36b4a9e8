//! Registered memory: `struct fid_mr`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::mr::Attr;
use selvedge::{Errno, IovMut, MemoryRegion, MrAccess, Result};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidMr, Ops, OpsMr, fclass, number};

use crate::domain::Domain;
use crate::ep::Ep;
use crate::object::{self, Class, Object, Table, User, argument};
use crate::pointer::{array, copy_out, prefix, put, required};
use crate::queue::cntr::Cntr;
use crate::status::{guarded_unit, log_error};

/// The object behind the handle of a region.
pub(crate) struct Mr {
    inner: Arc<dyn MemoryRegion>,
    base: u64,
    /// The counters that the region is bound to.
    counters: Mutex<Vec<User>>,
}

// SAFETY: `fid_mr` begins with its fid, and has no table behind it.
unsafe impl Class for Mr {
    type Handle = FidMr;
    const FCLASS: usize = fclass::MR;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidMr {
        FidMr {
            fid,
            mem_desc: ptr::without_provenance_mut(self.inner.desc().0),
            key: self.inner.key(),
        }
    }
}

static FID: Table<Ops, Mr> = object::ops::<Mr>()
    // Regions belong to their domain, so binding an endpoint has no effect. A counter counts the
    // peers' operations on the region.
    .bind(|mr, fid, flags| {
        guarded_unit(|| {
            // SAFETY: the C caller passes a handle, as fi_mr_bind(3) requires, here and below.
            match unsafe { required(fid.cast_const()) }?.fclass {
                // SAFETY: as above.
                fclass::CNTR => mr.bind_counter(unsafe { argument(fid) }?, flags),
                // SAFETY: as above.
                _ if unsafe { argument::<Ep>(fid) }.is_err() => Err(Errno::Inval),
                _ if flags != 0 => Err(Errno::BadFlags),
                _ => Ok(()),
            }
        })
    })
    .control(|mr, command, arg| {
        guarded_unit(|| match command {
            number::control::ENABLE | number::control::REFRESH => Ok(()),
            // SAFETY: the C caller follows fi_mr_raw_attr(3).
            number::control::GET_RAW_MR => unsafe { mr.write_raw_attr(arg.cast()) },
            _ => Err(Errno::NoSys),
        })
    });

/// The functions that register memory of a domain.
pub(crate) static MR: Table<OpsMr, Domain> = Table::<OpsMr, Domain>::empty()
    .reg(
        |domain, buf, len, access, offset, key, flags, mr, context| {
            let registration = registration(access, offset, key, flags, context);
            let segment = IovMut::from_raw(buf.cast_mut(), len);
            // SAFETY: the C caller follows fi_mr_reg(3).
            guarded_unit(|| unsafe { register(domain, &[segment], &registration, mr) })
        },
    )
    .regv(
        |domain, iov, count, access, offset, key, flags, mr, context| {
            guarded_unit(|| {
                let registration = registration(access, offset, key, flags, context);
                // SAFETY: the C caller follows fi_mr_regv(3); an `IovMut` is laid out as an
                // `iovec`.
                let region = unsafe { array(iov.cast::<IovMut>(), count) }?;
                // SAFETY: as above.
                unsafe { register(domain, region, &registration, mr) }
            })
        },
    )
    .regattr(|domain, attr, flags, mr| {
        guarded_unit(|| {
            // SAFETY: the C caller follows fi_mr_regattr(3), here and below.
            let attr = unsafe { prefix(attr, ATTR_1_0) }?;
            let (access, offset, key) = (attr.access, attr.offset, attr.requested_key);
            let registration = registration(access, offset, key, flags, attr.context);
            // SAFETY: as above; an `IovMut` is laid out as an `iovec`.
            let region = unsafe { array(attr.mr_iov.cast::<IovMut>(), attr.iov_count) }?;
            // SAFETY: as above.
            unsafe { register(domain, region, &registration, mr) }
        })
    });

/// Bytes of `struct fi_mr_attr` that every version has. Later members describe devices.
const ATTR_1_0: usize = 64;

/// The arguments of a registration.
struct Registration {
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

fn registration(
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
) -> Registration {
    Registration {
        access,
        offset,
        key,
        flags,
        context,
    }
}

/// `FI_RMA_EVENT`, which announces that counters will be bound. Every region supports counters.
const IGNORED_FLAGS: u64 = selvedge::Caps::RMA_EVENT.bits();

/// # Safety
/// The caller follows fi_mr(3).
unsafe fn register(
    domain: &Object<Domain>,
    region: &[IovMut],
    registration: &Registration,
    out: *mut *mut FidMr,
) -> Result {
    let make = || {
        if registration.flags & !IGNORED_FLAGS != 0 {
            return Err(Errno::BadFlags);
        }
        let base = region.first().ok_or(Errno::Inval)?.base.addr() as u64;
        let mut attr = Attr::default();
        attr.access = MrAccess::from_bits(registration.access).ok_or(Errno::Inval)?;
        attr.requested_key = registration.key;
        attr.offset = registration.offset;
        // SAFETY: passed on from the caller: the memory stays valid until the region is closed, and
        // only C code accesses it meanwhile.
        let inner = unsafe { domain.inner.reg(region, &attr) };
        Ok(Mr {
            inner: inner.map_err(|error| log_error(&error))?,
            base,
            counters: Mutex::default(),
        })
    };
    // SAFETY: passed on from the caller.
    unsafe { domain.child(out, registration.context, make) }
}

impl Mr {
    fn bind_counter(&self, cntr: &Object<Cntr>, flags: u64) -> Result {
        let access = MrAccess::from_bits(flags).ok_or(Errno::BadFlags)?;
        let bound = self.inner.bind_counter(&cntr.inner, access);
        bound.map_err(|error| log_error(&error))?;
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.push(cntr.new_user());
        Ok(())
    }

    /// fi_mr_raw_attr(3): writes the key as bytes, and the base address.
    ///
    /// # Safety
    /// `attr` is NULL or points to a structure whose pointers may be written.
    unsafe fn write_raw_attr(&self, attr: *const abi::MrRawAttr) -> Result {
        // SAFETY: passed on from the caller.
        let request = unsafe { required(attr) }?;
        let key = self.inner.key().to_ne_bytes();
        // SAFETY: passed on from the caller.
        unsafe { copy_out(request.raw_key, request.key_size, &key) }?;
        // SAFETY: passed on from the caller.
        unsafe { put(request.base_addr, self.base) }
    }
}
