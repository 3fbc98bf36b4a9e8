//! Registered memory: `struct fid_mr`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::mr::{Attr, Flags, HmemIface};
use selvedge::{Domain, Errno, IovMut, MemoryRegion, MrAccess, Result};
use selvedge_abi as abi;
use selvedge_abi::{FidMr, Ops, fclass, number};

use crate::ep::Ep;
use crate::object::{self, Object, Table, User, argument, class};
use crate::pointer::{array, copy_out, put, required};
use crate::queue::cntr::Cntr;
use crate::status::{guarded_unit, log_error};

/// The object behind the handle of a region.
pub(crate) struct Mr {
    inner: Arc<dyn MemoryRegion>,
    base: u64,
    /// The counters that the region is bound to.
    counters: Mutex<Vec<User>>,
}

class! {
    Mr, FidMr, FID, |_| fclass::MR;
    members |mr| mem_desc: ptr::without_provenance_mut(mr.inner.desc().0), key: mr.inner.key()
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

/// `FI_RMA_EVENT`, which announces that counters will be bound. Every region supports counters.
const IGNORED_FLAGS: u64 = selvedge::Caps::RMA_EVENT.bits();

/// The arguments of fi_mr_regv(3), to which the other functions are converted.
pub(crate) struct Registration {
    pub(crate) iov: *const abi::Iovec,
    pub(crate) count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) key: u64,
    pub(crate) flags: u64,
    /// The interface and the number of the device whose memory is registered.
    pub(crate) device: (u32, u64),
}

impl Mr {
    /// Registers memory.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an invalid list, for unknown access and for an unknown interface of
    /// devices; [`Errno::BadFlags`]; the provider's.
    ///
    /// # Safety
    /// The caller follows fi_mr(3).
    pub(crate) unsafe fn register(domain: &dyn Domain, request: &Registration) -> Result<Self> {
        // SAFETY: passed on from the caller; an `IovMut` is laid out as an `iovec`.
        let region = unsafe { array(request.iov.cast::<IovMut>(), request.count) }?;
        let flags = Flags::from_bits(request.flags & !IGNORED_FLAGS).ok_or(Errno::BadFlags)?;
        let (iface, device) = request.device;
        let mut ifaces = HmemIface::ALL.iter().copied();
        let iface = ifaces.find(|&known| known as u32 == iface);
        let base = region.first().ok_or(Errno::Inval)?.base.addr() as u64;
        let mut attr = Attr::default();
        attr.access = MrAccess::from_bits(request.access).ok_or(Errno::Inval)?;
        attr.requested_key = request.key;
        attr.offset = request.offset;
        attr.iface = iface.ok_or(Errno::Inval)?;
        attr.device = device;
        attr.flags = flags;
        // SAFETY: passed on from the caller: the memory stays valid until the region is closed, and
        // only C code accesses it meanwhile.
        let inner = unsafe { domain.reg(region, &attr) };
        Ok(Self {
            inner: inner.map_err(|error| log_error(&error))?,
            base,
            counters: Mutex::default(),
        })
    }

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
