//! Address vectors: `struct fid_av`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use selvedge::{AddrFormat, Address, AddressVector, Caps, Errno, FiAddr, OpFlags, Result, av};
use selvedge_abi as abi;
use selvedge_abi::{Fid, FidAv, Ops, OpsAv, fclass, number};

use crate::addr;
use crate::domain::Domain;
use crate::object::{self, Class, Object, Table, argument};
use crate::pointer::{fill, list, output, put, required, text};
use crate::status::{error_status, guarded, guarded_unit, log_error};
use crate::{av_set, eq, info};

/// The object behind the handle of an address vector.
pub(crate) struct Av {
    pub(crate) inner: Arc<dyn AddressVector>,
    format: AddrFormat,
    /// The indices that programs read from `map_addr` of a named vector.
    _map: Box<[abi::FiAddr]>,
}

// SAFETY: `fid_av` begins with its fid, and has a table of functions behind it.
unsafe impl Class for Av {
    type Handle = FidAv;
    const FCLASS: usize = fclass::AV;
    const OPS: &'static Table<Ops, Self> = &FID;

    fn handle(&self, fid: Fid) -> FidAv {
        let ops = &AV.ops;
        FidAv { fid, ops }
    }
}

/// Insertions complete before they return, so an event queue cannot be bound.
static FID: Table<Ops, Av> = object::ops::<Av>().bind(|_, fid, flags| {
    guarded_unit(|| {
        // SAFETY: the C caller passes a handle, as fi_av_bind(3) requires.
        unsafe { argument::<eq::Eq>(fid) }?;
        match flags {
            0 => Err(Errno::NoSys),
            _ => Err(Errno::BadFlags),
        }
    })
});

static AV: Table<OpsAv, Av> = Table::<OpsAv, Av>::empty()
    .insert(|av, addr, count, out, flags, context| {
        // SAFETY: the C caller follows fi_av_insert(3).
        guarded(|| unsafe { av.insert(addr, count, out, flags, context) })
    })
    .insertsvc(|av, node, service, out, flags, context| {
        guarded(|| {
            check_flags(flags)?;
            // SAFETY: the C caller follows fi_av_insertsvc(3), here and below.
            let node = unsafe { text(node) }?.unwrap_or_default();
            // SAFETY: as above.
            let service = unsafe { text(service) }?.unwrap_or_default();
            // SAFETY: as above.
            let mut outputs = unsafe { Outputs::of(out, context, flags, 1) }?;
            let inner = av.inner.insert_service(node, service).map_err(Errno::from);
            outputs.write(0, inner);
            inner.map(|_| 1)
        })
    })
    .insertsym(|av, node, nodecnt, service, svccnt, out, flags, context| {
        guarded(|| {
            check_flags(flags)?;
            // SAFETY: the C caller follows fi_av_insertsym(3), here and below.
            let node = unsafe { text(node) }?.ok_or(Errno::Inval)?;
            // SAFETY: as above.
            let service = unsafe { text(service) }?.ok_or(Errno::Inval)?;
            let count = nodecnt.checked_mul(svccnt);
            let count = count.filter(|&count| count <= MAX_COUNT);
            let mut inner = vec![FiAddr::NOTAVAIL; count.ok_or(Errno::Inval)?];
            let vector = &av.inner;
            let inserted = vector.insert_symmetric(node, nodecnt, service, svccnt, &mut inner)?;
            // SAFETY: as above.
            let mut outputs = unsafe { Outputs::of(out, context, flags, inner.len()) }?;
            for (at, &addr) in inner.iter().enumerate() {
                let is_there = addr != FiAddr::NOTAVAIL;
                outputs.write(at, is_there.then_some(addr).ok_or(Errno::AddrNotAvail));
            }
            Ok(c_int::try_from(inserted).unwrap_or(c_int::MAX))
        })
    })
    .remove(|av, addrs, count, flags| {
        guarded_unit(|| {
            if flags != 0 {
                return Err(Errno::BadFlags);
            }
            // SAFETY: the C caller follows fi_av_remove(3).
            let addrs = unsafe { list(addrs, count) }?;
            let addrs: Vec<_> = addrs.iter().copied().map(FiAddr).collect();
            av.inner.remove(&addrs)
        })
    })
    // fi_av_lookup(3): a buffer that is too small is no error; the beginning is copied.
    .lookup(|av, addr, buf, len| {
        guarded_unit(|| {
            let found = addr::encode(&av.inner.lookup(FiAddr(addr))?);
            // SAFETY: the C caller follows fi_av_lookup(3).
            match unsafe { fill(buf.cast(), len, &found) } {
                Err(Errno::TooSmall) => Ok(()),
                result => result,
            }
        })
    })
    .straddr(|av, addr, buf, len| {
        let written = guarded_unit(|| {
            // SAFETY: the C caller follows fi_av_straddr(3), here and below.
            let (addr, _) = unsafe { addr::at(addr, av.format) }?;
            let text = printed(&addr);
            // SAFETY: as above.
            let had = *unsafe { required(len) }?;
            // SAFETY: as above.
            match unsafe { fill(buf.cast(), len, text.as_bytes()) } {
                // A text that is cut ends with a zero, too.
                // SAFETY: C vouches for `had` bytes.
                Err(Errno::TooSmall) if had > 0 => unsafe { put(buf.wrapping_add(had - 1), 0) },
                Err(Errno::TooSmall) => Ok(()),
                result => result,
            }
        });
        if written == 0 { buf } else { std::ptr::null() }
    })
    // fi_av_set_user_id(3)
    .set_user_id(|av, addr, id, flags| {
        guarded_unit(|| match flags {
            0 => av.inner.set_user_id(FiAddr(addr), FiAddr(id)),
            _ => Err(Errno::BadFlags),
        })
    })
    .av_set(|av, attr, out, context| {
        // SAFETY: the C caller follows fi_av_set(3).
        guarded_unit(|| unsafe { av_set::open(av, attr, out, context) })
    });

/// Opens an address vector.
///
/// # Errors
/// [`Errno::Inval`] for `FI_READ` without a name; [`Errno::NoSys`] for flags that are not
/// supported; the provider's.
///
/// # Safety
/// `given_attr` is NULL or points to attributes, which may be written; `out` is NULL or may be
/// written.
pub(crate) unsafe fn open(
    domain: &Object<Domain>,
    given_attr: *mut abi::AvAttr,
    out: *mut *mut FidAv,
    context: *mut c_void,
) -> Result {
    let make = || {
        // SAFETY: passed on from the caller.
        let wanted = unsafe { attributes(given_attr) }?;
        let inner = domain
            .inner
            .av(&wanted)
            .map_err(|error| log_error(&error))?;
        let map = map_of(&wanted, &*inner);
        if wanted.name.is_some() {
            let at = map.as_ptr().cast_mut().cast();
            // SAFETY: it was read just now, so it is not NULL.
            let map_addr = unsafe { &raw mut (*given_attr).map_addr };
            // SAFETY: the caller allows writing it.
            unsafe { put(map_addr, at) }?;
        }
        let (format, _map) = (domain.format, map);
        Ok(Av {
            inner,
            format,
            _map,
        })
    };
    // SAFETY: passed on from the caller.
    unsafe { domain.child(out, context, make) }
}

/// # Safety
/// As [`open`].
unsafe fn attributes(attr: *const abi::AvAttr) -> Result<av::Attr> {
    // SAFETY: passed on from the caller.
    let attr = unsafe { required(attr) }?;
    // `FI_SYMMETRIC` is a hint. Other flags, such as the deprecated `FI_EVENT`, are not supported.
    let ignored = number::av::SYMMETRIC;
    if attr.flags & !(ignored | READ) != 0 {
        return Err(Errno::NoSys);
    }
    let mut wanted = av::Attr::default();
    wanted.av_type = info::av_type(attr.av_type).ok_or(Errno::Inval)?;
    wanted.count = attr.count.min(MAX_COUNT);
    wanted.rx_ctx_bits = u32::try_from(attr.rx_ctx_bits).map_err(|_| Errno::Inval)?;
    // SAFETY: passed on from the caller.
    let name = unsafe { text(attr.name) }?.map(str::to_owned);
    wanted.name = match (name, attr.flags & READ != 0) {
        (None, true) => return Err(Errno::Inval),
        (name, true) => name.map(av::SharedName::Open),
        (name, false) => name.map(av::SharedName::Create),
    };
    Ok(wanted)
}

/// `FI_READ`.
const READ: u64 = Caps::READ.bits();

/// The array at `map_addr`, from which programs of a named vector read indices: all that are
/// inserted, and at least as many as are expected, because peers may be inserted later.
fn map_of(attr: &av::Attr, inner: &dyn AddressVector) -> Box<[abi::FiAddr]> {
    const SOME: u64 = 1024;
    if attr.name.is_none() {
        return Box::default();
    }
    let members = inner.members().unwrap_or_default();
    let last = members.last().map_or(0, |addr| addr.0 + 1);
    (0..SOME.max(last).max(attr.count as u64)).collect()
}

/// A bound of the count, which is a hint and must not exhaust the memory.
const MAX_COUNT: usize = 1 << 20;

impl Av {
    /// # Safety
    /// The caller follows fi_av_insert(3).
    unsafe fn insert(
        &self,
        addr: *const c_void,
        count: usize,
        out: *mut abi::FiAddr,
        flags: u64,
        context: *mut c_void,
    ) -> Result<c_int> {
        let named = flags & USER_ID != 0;
        check_flags(flags & !USER_ID)?;
        if named && out.is_null() && count > 0 {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let given = unsafe { addr::all(addr, count, self.format) }?;
        // SAFETY: passed on from the caller.
        let mut outputs = unsafe { Outputs::of(out, context, flags, count) }?;
        let inserted = given.into_iter().enumerate().filter_map(|(at, addr)| {
            let id = outputs.addrs.get(at).filter(|_| named);
            // SAFETY: a program that passes `FI_AV_USER_ID` has initialised the array.
            let id = id.map(|id| unsafe { id.assume_init() });
            let inner = addr.and_then(|addr| {
                let inner = self.inner.insert_one(&addr)?;
                id.map_or(Ok(()), |id| self.inner.set_user_id(inner, FiAddr(id)))?;
                Ok(inner)
            });
            outputs.write(at, inner)
        });
        Ok(c_int::try_from(inserted.count()).unwrap_or(c_int::MAX))
    }
}

/// `FI_AV_USER_ID`: the array for the indices holds the numbers by which completions name the
/// peers.
const USER_ID: u64 = Caps::AV_USER_ID.bits();

fn check_flags(flags: u64) -> Result {
    match flags & !(OpFlags::MORE.bits() | number::av::SYNC_ERR) {
        0 => Ok(()),
        _ => Err(Errno::BadFlags),
    }
}

/// The arrays for the results of insertions: an index each, and with `FI_SYNC_ERR` an error each.
struct Outputs<'a> {
    addrs: &'a mut [MaybeUninit<abi::FiAddr>],
    errors: &'a mut [MaybeUninit<c_int>],
}

impl Outputs<'_> {
    /// # Errors
    /// [`Errno::Inval`] for impossible counts.
    ///
    /// # Safety
    /// The caller follows fi_av_insert(3).
    unsafe fn of(
        addrs: *mut abi::FiAddr,
        context: *mut c_void,
        flags: u64,
        count: usize,
    ) -> Result<Self> {
        let wants_addrs = if addrs.is_null() { 0 } else { count };
        let wants_errors = if flags & number::av::SYNC_ERR == 0 {
            0
        } else {
            count
        };
        Ok(Self {
            // SAFETY: passed on from the caller.
            addrs: unsafe { output(addrs, wants_addrs) }?,
            // SAFETY: passed on from the caller.
            errors: unsafe { output(context.cast::<c_int>(), wants_errors) }?,
        })
    }

    fn write(&mut self, at: usize, inner: Result<FiAddr>) -> Option<FiAddr> {
        if let Some(addr) = self.addrs.get_mut(at) {
            addr.write(inner.unwrap_or(FiAddr::NOTAVAIL).0);
        }
        if let Some(error) = self.errors.get_mut(at) {
            error.write(inner.err().map_or(0, |errno| -error_status(errno)));
        }
        inner.ok()
    }
}

/// The text of an address in libfabric's format, with a zero behind it.
fn printed(addr: &Address) -> String {
    let scheme = match addr.format() {
        AddrFormat::SockaddrIn => "fi_sockaddr_in://",
        AddrFormat::SockaddrIn6 => "fi_sockaddr_in6://",
        _ => "",
    };
    format!("{scheme}{addr}\0")
}
