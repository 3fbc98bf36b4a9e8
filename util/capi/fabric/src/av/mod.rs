//! Address vectors: `struct fid_av`.

#![expect(unsafe_code, reason = "functions of C")]

pub(crate) mod set;

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use selvedge::{
    AddrFormat, Address, AddressVector, Caps, Domain, Errno, FiAddr, OpFlags, Result, av,
};
use selvedge_abi as abi;
use selvedge_abi::{FidAv, Ops, OpsAv, fclass, number};

use crate::object::{self, Table, argument, class, open_child};
use crate::pointer::{array, copy_out, output_array, put, required, text};
use crate::queue::eq::Eq;
use crate::status::{error_status, guarded, guarded_unit, log_error};
use crate::{addr, info};
use set::AvSet;

/// The object behind the handle of an address vector.
pub(crate) struct Av {
    pub(crate) inner: Arc<dyn AddressVector>,
    format: AddrFormat,
    /// The indices that programs read through `map_addr` of a named vector.
    _map: Box<[abi::FiAddr]>,
}

class! {
    Av, FidAv, FID, |_| fclass::AV;
    tables |_| ops: &AV
}

/// Insertions complete before they return, so an event queue cannot be bound.
static FID: Table<Ops, Av> = object::ops::<Av>().bind(|_, fid, flags| {
    guarded_unit(|| {
        // SAFETY: the C caller passes a handle, as fi_av_bind(3) requires.
        unsafe { argument::<Eq>(fid) }?;
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
            let mut outputs = unsafe { Outputs::new(out, context, flags, 1) }?;
            let inserted = av.inner.insert_service(node, service).map_err(Errno::from);
            outputs.write(0, inserted);
            inserted.map(|_| 1)
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
            let mut indices = vec![FiAddr::NOTAVAIL; count.ok_or(Errno::Inval)?];
            let vector = &av.inner;
            let inserted = vector.insert_symmetric(node, nodecnt, service, svccnt, &mut indices)?;
            // SAFETY: as above.
            let mut outputs = unsafe { Outputs::new(out, context, flags, indices.len()) }?;
            for (index, &addr) in indices.iter().enumerate() {
                let is_inserted = addr != FiAddr::NOTAVAIL;
                outputs.write(
                    index,
                    is_inserted.then_some(addr).ok_or(Errno::AddrNotAvail),
                );
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
            let addrs = unsafe { array(addrs, count) }?;
            let addrs: Vec<_> = addrs.iter().copied().map(FiAddr).collect();
            av.inner.remove(&addrs)
        })
    })
    // fi_av_lookup(3): a buffer that is too small is no error; the address is truncated.
    .lookup(|av, addr, buf, len| {
        guarded_unit(|| {
            let encoded = addr::encode(&av.inner.lookup(FiAddr(addr))?);
            // SAFETY: the C caller follows fi_av_lookup(3).
            match unsafe { copy_out(buf.cast(), len, &encoded) } {
                Err(Errno::TooSmall) => Ok(()),
                result => result,
            }
        })
    })
    .straddr(|av, addr, buf, len| {
        let written = guarded_unit(|| {
            // SAFETY: the C caller follows fi_av_straddr(3), here and below.
            let (addr, _) = unsafe { addr::read(addr, av.format) }?;
            let text = format_address(&addr);
            // SAFETY: as above.
            let capacity = *unsafe { required(len) }?;
            // SAFETY: as above.
            match unsafe { copy_out(buf.cast(), len, text.as_bytes()) } {
                // A truncated text ends with a zero, too.
                // SAFETY: the C caller vouches for `capacity` bytes.
                Err(Errno::TooSmall) if capacity > 0 => unsafe {
                    put(buf.wrapping_add(capacity - 1), 0)
                },
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
    .av_set(|av, attr, out, context| open_child!(av, out, context, AvSet::open(&*av.inner, attr)));

impl Av {
    /// Opens an address vector of a domain with this address format.
    ///
    /// # Errors
    /// [`Errno::Inval`] for `FI_READ` without a name; [`Errno::NoSys`] for flags that are not
    /// supported; the errors of the provider.
    ///
    /// # Safety
    /// `attr_c` is NULL or points to attributes, which may be written.
    pub(crate) unsafe fn open(
        domain: &dyn Domain,
        format: AddrFormat,
        attr_c: *mut abi::AvAttr,
    ) -> Result<Self> {
        // SAFETY: passed on from the caller.
        let attr = unsafe { attributes(attr_c) }?;
        let inner = domain.av(&attr).map_err(|error| log_error(&error))?;
        let _map = build_map(&attr, &*inner);
        if attr.name.is_some() {
            let first = _map.as_ptr().cast_mut().cast();
            // SAFETY: the attributes were read just now, so the pointer is not NULL.
            let map_addr = unsafe { &raw mut (*attr_c).map_addr };
            // SAFETY: the caller allows writing the attributes.
            unsafe { put(map_addr, first) }?;
        }
        Ok(Self {
            inner,
            format,
            _map,
        })
    }
}

/// # Safety
/// As [`Av::open`].
unsafe fn attributes(attr: *const abi::AvAttr) -> Result<av::Attr> {
    // SAFETY: passed on from the caller.
    let attr = unsafe { required(attr) }?;
    // `FI_SYMMETRIC` is a hint. Other flags, such as the deprecated `FI_EVENT`, are not supported.
    let ignored = number::av::SYMMETRIC;
    if attr.flags & !(ignored | READ) != 0 {
        return Err(Errno::NoSys);
    }
    let mut request = av::Attr::default();
    request.av_type = info::av_type(attr.av_type).ok_or(Errno::Inval)?;
    request.count = attr.count.min(MAX_COUNT);
    request.rx_ctx_bits = u32::try_from(attr.rx_ctx_bits).map_err(|_| Errno::Inval)?;
    // SAFETY: passed on from the caller.
    let name = unsafe { text(attr.name) }?.map(str::to_owned);
    request.name = match (name, attr.flags & READ != 0) {
        (None, true) => return Err(Errno::Inval),
        (name, true) => name.map(av::SharedName::Open),
        (name, false) => name.map(av::SharedName::Create),
    };
    Ok(request)
}

/// `FI_READ`.
const READ: u64 = Caps::READ.bits();

/// The array at `map_addr`, from which programs of a named vector read indices. The array has every
/// inserted index, and at least the expected count because peers may be inserted later.
fn build_map(attr: &av::Attr, inner: &dyn AddressVector) -> Box<[abi::FiAddr]> {
    const MIN_LEN: u64 = 1024;
    if attr.name.is_none() {
        return Box::default();
    }
    let members = inner.members().unwrap_or_default();
    let last = members.last().map_or(0, |addr| addr.0 + 1);
    (0..MIN_LEN.max(last).max(attr.count as u64)).collect()
}

/// A limit of the count, which is a hint and must not exhaust the memory.
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
        let sets_user_ids = flags & USER_ID != 0;
        check_flags(flags & !USER_ID)?;
        if sets_user_ids && out.is_null() && count > 0 {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller.
        let addrs = unsafe { addr::read_array(addr, count, self.format) }?;
        // SAFETY: passed on from the caller.
        let mut outputs = unsafe { Outputs::new(out, context, flags, count) }?;
        let inserted = addrs.into_iter().enumerate().filter_map(|(index, addr)| {
            let id = outputs.addrs.get(index).filter(|_| sets_user_ids);
            // SAFETY: a program that passes `FI_AV_USER_ID` has initialised the array.
            let id = id.map(|id| unsafe { id.assume_init() });
            let inserted = addr.and_then(|addr| {
                let inserted = self.inner.insert_one(&addr)?;
                id.map_or(Ok(()), |id| self.inner.set_user_id(inserted, FiAddr(id)))?;
                Ok(inserted)
            });
            outputs.write(index, inserted)
        });
        Ok(c_int::try_from(inserted.count()).unwrap_or(c_int::MAX))
    }
}

/// `FI_AV_USER_ID`: on input, the array for the indices holds the ids that completions report for
/// the peers.
const USER_ID: u64 = Caps::AV_USER_ID.bits();

fn check_flags(flags: u64) -> Result {
    match flags & !(OpFlags::MORE.bits() | number::av::SYNC_ERR) {
        0 => Ok(()),
        _ => Err(Errno::BadFlags),
    }
}

/// The arrays for the results of an insertion: one index for each address, and with `FI_SYNC_ERR`
/// one error for each address.
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
    unsafe fn new(
        addrs: *mut abi::FiAddr,
        context: *mut c_void,
        flags: u64,
        count: usize,
    ) -> Result<Self> {
        let addr_count = if addrs.is_null() { 0 } else { count };
        let error_count = if flags & number::av::SYNC_ERR == 0 {
            0
        } else {
            count
        };
        Ok(Self {
            // SAFETY: passed on from the caller.
            addrs: unsafe { output_array(addrs, addr_count) }?,
            // SAFETY: passed on from the caller.
            errors: unsafe { output_array(context.cast::<c_int>(), error_count) }?,
        })
    }

    fn write(&mut self, index: usize, inserted: Result<FiAddr>) -> Option<FiAddr> {
        if let Some(addr) = self.addrs.get_mut(index) {
            addr.write(inserted.unwrap_or(FiAddr::NOTAVAIL).0);
        }
        if let Some(error) = self.errors.get_mut(index) {
            error.write(inserted.err().map_or(0, |errno| -error_status(errno)));
        }
        inserted.ok()
    }
}

/// The text of an address in libfabric's format, with a final zero.
fn format_address(addr: &Address) -> String {
    let scheme = match addr.format() {
        AddrFormat::SockaddrIn => "fi_sockaddr_in://",
        AddrFormat::SockaddrIn6 => "fi_sockaddr_in6://",
        _ => "",
    };
    format!("{scheme}{addr}\0")
}
