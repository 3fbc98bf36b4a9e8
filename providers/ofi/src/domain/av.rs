//! Address vectors.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use selvedge::{Address, AddressVector, Errno, Error, FiAddr, Result, av};
use selvedge_abi::{AvAttr, Fid, FidAv, addr};
use selvedge_kit::{DomainId, OfDomain};

use super::state::DomainState;
use crate::object::{Handle, call, to_count, to_result};

/// An address vector of the library.
pub(crate) struct Av {
    handle: Handle<FidAv>,
    domain: Arc<DomainState>,
    /// The valid indices: libraries do not check an index that they are given.
    valid: RwLock<HashSet<FiAddr>>,
}

/// The size of the longest address in bytes.
const ADDRESS_MAX: usize = 4096;

impl Av {
    pub(crate) fn open(domain: &Arc<DomainState>, attr: &av::Attr) -> Result<Self, Error> {
        let fid = domain.ptr_or_error()?;
        let mut requested = AvAttr {
            av_type: attr.av_type as u32,
            rx_ctx_bits: 0,
            count: attr.count,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        let handle = Handle::open(
            domain.library(),
            domain.describe("an address vector"),
            |out| {
                let requested = &raw mut requested;
                // SAFETY: the domain is open, and the attributes live during the call.
                unsafe { call!(fid, (*fid).ops, av_open, requested, out, ptr::null_mut()) }
            },
        )?;
        Ok(Self {
            handle,
            domain: Arc::clone(domain),
            valid: RwLock::default(),
        })
    }

    pub(crate) fn fid(&self) -> Result<*mut Fid, Error> {
        self.handle.fid_or_error()
    }

    /// Checks an index.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an index that is not in the vector.
    #[inline]
    pub(crate) fn check(&self, addr: FiAddr) -> Result {
        if self.valid().contains(&addr) {
            Ok(())
        } else {
            Err(Errno::Inval)
        }
    }

    /// Adds an index that another call has returned.
    pub(crate) fn add_index(&self, addr: FiAddr) {
        self.valid_mut().insert(addr);
    }

    pub(crate) fn remove_index(&self, addr: FiAddr) {
        self.valid_mut().remove(&addr);
    }

    /// Adds the indices that the library has written, and returns their number.
    fn record_inserted(&self, code: i32, out: &[FiAddr]) -> Result<usize> {
        to_count(code as isize)?;
        let valid = out.iter().copied().filter(|&addr| addr != FiAddr::NOTAVAIL);
        let count = valid.clone().count();
        self.valid_mut().extend(valid);
        Ok(count)
    }

    /// fi_av_insertsvc(3).
    fn call_insertsvc(&self, node: &str, service: &str) -> Result<FiAddr> {
        let av = self.handle.ptr()?;
        let (node, service) = (text(node)?, text(service)?);
        let mut found = FiAddr::NOTAVAIL;
        let (out_ptr, null) = ((&raw mut found).cast(), ptr::null_mut());
        let (node, service) = (node.as_ref(), service.as_ref());
        let pointer = |text: Option<&CString>| text.map_or(ptr::null(), |text| text.as_ptr());
        let (node, service) = (pointer(node), pointer(service));
        // SAFETY: the vector is open, both are texts or NULL, and there is room for the index.
        let code = unsafe { call!(av, (*av).ops, insertsvc, node, service, out_ptr, 0, null) };
        match self.record_inserted(code, &[found])? {
            0 => Err(Errno::Inval),
            _ => Ok(found),
        }
    }

    /// fi_av_insertsym(3).
    fn call_insertsym(
        &self,
        (node, nodes): (&str, usize),
        (service, services): (&str, usize),
        out: &mut [FiAddr],
    ) -> Result<usize> {
        let count = nodes.checked_mul(services).ok_or(Errno::Inval)?;
        let out = out.get_mut(..count).ok_or(Errno::Inval)?;
        let av = self.handle.ptr()?;
        let node = text(node)?.ok_or(Errno::Inval)?;
        let service = text(service)?.ok_or(Errno::Inval)?;
        out.fill(FiAddr::NOTAVAIL);
        let (node, service) = (node.as_ptr(), service.as_ptr());
        let (out_ptr, null) = (out.as_mut_ptr().cast(), ptr::null_mut());
        // SAFETY: the vector is open, both are texts, and there is room for each index.
        let code = unsafe {
            call!(
                av,
                (*av).ops,
                insertsym,
                node,
                nodes,
                service,
                services,
                out_ptr,
                0,
                null
            )
        };
        self.record_inserted(code, out)
    }

    fn valid(&self) -> RwLockReadGuard<'_, HashSet<FiAddr>> {
        self.valid.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn valid_mut(&self) -> RwLockWriteGuard<'_, HashSet<FiAddr>> {
        self.valid.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressVector for Av {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        if out.len() < addrs.len() {
            return Err(Errno::Inval);
        }
        let av = self.handle.ptr()?;
        let mut count = 0;
        for (addr, slot) in addrs.iter().zip(out) {
            let bytes = addr::encode(addr);
            let (addr_ptr, null) = (bytes.as_ptr().cast(), ptr::null_mut());
            *slot = FiAddr::NOTAVAIL;
            if !self.domain.addr_format.accepts(addr.format()) {
                continue;
            }
            let out_ptr = (&raw mut *slot).cast();
            // SAFETY: the vector is open; there is one address, and room for its index.
            let code = unsafe { call!(av, (*av).ops, insert, addr_ptr, 1, out_ptr, 0, null) };
            count += match self.record_inserted(code, &[*slot]) {
                Ok(count) => count,
                Err(Errno::Inval | Errno::AddrNotAvail) => 0,
                Err(errno) => return Err(errno),
            };
        }
        Ok(count)
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        let inserted = self.call_insertsvc(node, service);
        inserted.map_err(|errno| {
            let message = format!("{self:?} cannot insert node {node:?} with service {service:?}");
            Error::new(errno, message)
        })
    }

    fn insert_symmetric(
        &self,
        node: &str,
        nodes: usize,
        service: &str,
        services: usize,
        out: &mut [FiAddr],
    ) -> Result<usize, Error> {
        let count = out.len();
        let inserted = self.call_insertsym((node, nodes), (service, services), out);
        inserted.map_err(|errno| {
            let message = format!(
                "{self:?} cannot insert {nodes} nodes from {node:?} with {services} services from \
                 {service:?} into {count} handles"
            );
            Error::new(errno, message)
        })
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        addrs.iter().try_for_each(|&addr| self.check(addr))?;
        let av = self.handle.ptr()?;
        let mut list: Vec<u64> = addrs.iter().map(|addr| addr.0).collect();
        let (first, count) = (list.as_mut_ptr(), list.len());
        // SAFETY: the vector is open, and the list lives during the call.
        to_result(unsafe { call!(av, (*av).ops, remove, first, count, 0) })?;
        addrs.iter().for_each(|&addr| self.remove_index(addr));
        Ok(())
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        self.check(addr)?;
        let av = self.handle.ptr()?;
        let mut bytes = vec![0_u8; ADDRESS_MAX];
        let mut len = bytes.len();
        let (out_ptr, index) = (bytes.as_mut_ptr().cast(), addr.0);
        // SAFETY: the vector is open, it has the index, and the buffer has this many bytes.
        to_result(unsafe { call!(av, (*av).ops, lookup, index, out_ptr, &raw mut len) })?;
        bytes.truncate(len);
        addr::decode(&bytes, self.domain.addr_format)
    }
}

/// Converts a text to a C string; `None` for an empty text.
fn text(value: &str) -> Result<Option<CString>> {
    if value.is_empty() {
        return Ok(None);
    }
    CString::new(value).map(Some).map_err(|_| Errno::Inval)
}

impl OfDomain for Av {
    fn domain(&self) -> &DomainId {
        &self.domain.id
    }
}

impl fmt::Debug for Av {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain.describe("address vector"))
    }
}
