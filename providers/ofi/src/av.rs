//! Address vectors.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call is an object, its table and a slot of it"
)]

use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;
use std::ptr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use selvedge::{Address, AddressVector, Errno, Error, FiAddr, Result, av};
use selvedge_abi::{AvAttr, Fid, FidAv, addr};
use selvedge_kit::{DomainId, OfDomain};

use crate::domain;
use crate::object::{Handle, call, counted, done};

/// An address vector of the library.
pub(crate) struct Av {
    handle: Handle<FidAv>,
    domain: Arc<domain::Inner>,
    /// What may be named: libraries look nothing up that they are given as an index.
    known: RwLock<HashSet<FiAddr>>,
}

/// Bytes of the longest address.
const ADDRESS_MAX: usize = 4096;

impl Av {
    pub(crate) fn open(domain: &Arc<domain::Inner>, attr: &av::Attr) -> Result<Self, Error> {
        let at = domain.parent()?;
        let mut asked = AvAttr {
            av_type: attr.av_type as u32,
            rx_ctx_bits: 0,
            count: attr.count,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        let handle = Handle::open(domain.library(), domain.of("an address vector"), |out| {
            let asked = &raw mut asked;
            // SAFETY: the domain is open, and the attributes live during the call.
            unsafe { call!(at, (*at).ops, av_open, asked, out, ptr::null_mut()) }
        })?;
        Ok(Self {
            handle,
            domain: Arc::clone(domain),
            known: RwLock::default(),
        })
    }

    pub(crate) fn fid(&self) -> Result<*mut Fid, Error> {
        self.handle.own_fid()
    }

    /// Whether an index is somebody's.
    ///
    /// # Errors
    /// [`Errno::Inval`] when it is nobody's.
    #[inline]
    pub(crate) fn check(&self, addr: FiAddr) -> Result {
        match self.known().contains(&addr) {
            true => Ok(()),
            false => Err(Errno::Inval),
        }
    }

    /// Takes down an index that something else has given out.
    pub(crate) fn know(&self, addr: FiAddr) {
        self.knowing().insert(addr);
    }

    pub(crate) fn forget(&self, addr: FiAddr) {
        self.knowing().remove(&addr);
    }

    /// Takes down what the library has filled in; how many there are.
    fn inserted(&self, answer: i32, out: &[FiAddr]) -> Result<usize> {
        counted(answer as isize)?;
        let valid = out.iter().copied().filter(|&addr| addr != FiAddr::NOTAVAIL);
        let count = valid.clone().count();
        self.knowing().extend(valid);
        Ok(count)
    }

    /// fi_av_insertsvc(3).
    fn service(&self, node: &str, service: &str) -> Result<FiAddr> {
        let at = self.handle.at()?;
        let (node, service) = (text(node)?, text(service)?);
        let mut found = FiAddr::NOTAVAIL;
        let (place, null) = ((&raw mut found).cast(), ptr::null_mut());
        let (node, service) = (node.as_ref(), service.as_ref());
        let pointer = |text: Option<&CString>| text.map_or(ptr::null(), |text| text.as_ptr());
        let (node, service) = (pointer(node), pointer(service));
        // SAFETY: the vector is open, both are texts or NULL, and there is a place for the index.
        let answer = unsafe { call!(at, (*at).ops, insertsvc, node, service, place, 0, null) };
        match self.inserted(answer, &[found])? {
            0 => Err(Errno::Inval),
            _ => Ok(found),
        }
    }

    /// fi_av_insertsym(3).
    fn symmetric(
        &self,
        (node, nodes): (&str, usize),
        (service, services): (&str, usize),
        out: &mut [FiAddr],
    ) -> Result<usize> {
        let room = nodes.checked_mul(services).ok_or(Errno::Inval)?;
        let out = out.get_mut(..room).ok_or(Errno::Inval)?;
        let at = self.handle.at()?;
        let node = text(node)?.ok_or(Errno::Inval)?;
        let service = text(service)?.ok_or(Errno::Inval)?;
        out.fill(FiAddr::NOTAVAIL);
        let (node, service) = (node.as_ptr(), service.as_ptr());
        let (places, null) = (out.as_mut_ptr().cast(), ptr::null_mut());
        // SAFETY: the vector is open, both are texts, and there is a place for each index.
        let answer = unsafe {
            call!(
                at,
                (*at).ops,
                insertsym,
                node,
                nodes,
                service,
                services,
                places,
                0,
                null
            )
        };
        self.inserted(answer, out)
    }

    fn known(&self) -> RwLockReadGuard<'_, HashSet<FiAddr>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn knowing(&self) -> RwLockWriteGuard<'_, HashSet<FiAddr>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressVector for Av {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        if out.len() < addrs.len() {
            return Err(Errno::Inval);
        }
        let at = self.handle.at()?;
        let mut count = 0;
        for (addr, slot) in addrs.iter().zip(out) {
            let bytes = addr::encode(addr);
            let (from, null) = (bytes.as_ptr().cast(), ptr::null_mut());
            *slot = FiAddr::NOTAVAIL;
            if !self.domain.addr_format.accepts(addr.format()) {
                continue;
            }
            let place = (&raw mut *slot).cast();
            // SAFETY: the vector is open; there are one address and one place for its index.
            let answer = unsafe { call!(at, (*at).ops, insert, from, 1, place, 0, null) };
            count += match self.inserted(answer, &[*slot]) {
                Ok(count) => count,
                Err(Errno::Inval | Errno::AddrNotAvail) => 0,
                Err(errno) => return Err(errno),
            };
        }
        Ok(count)
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        let inserted = self.service(node, service);
        inserted.map_err(|errno| {
            let what = format!("{self:?} does not take node {node:?} with service {service:?}");
            Error::new(errno, what)
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
        let room = out.len();
        let inserted = self.symmetric((node, nodes), (service, services), out);
        inserted.map_err(|errno| {
            let what = format!(
                "{self:?} does not take {nodes} nodes from {node:?} with {services} services from \
                 {service:?} for {room} handles"
            );
            Error::new(errno, what)
        })
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        addrs.iter().try_for_each(|&addr| self.check(addr))?;
        let at = self.handle.at()?;
        let mut list: Vec<u64> = addrs.iter().map(|addr| addr.0).collect();
        let (first, count) = (list.as_mut_ptr(), list.len());
        // SAFETY: the vector is open, and the list lives during the call.
        done(unsafe { call!(at, (*at).ops, remove, first, count, 0) })?;
        addrs.iter().for_each(|&addr| self.forget(addr));
        Ok(())
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        self.check(addr)?;
        let at = self.handle.at()?;
        let mut bytes = vec![0_u8; ADDRESS_MAX];
        let mut len = bytes.len();
        let (place, index) = (bytes.as_mut_ptr().cast(), addr.0);
        // SAFETY: the vector is open, the index is known to it, and there is room for as many bytes.
        done(unsafe { call!(at, (*at).ops, lookup, index, place, &raw mut len) })?;
        bytes.truncate(len);
        addr::decode(&bytes, self.domain.addr_format)
    }
}

/// A text for C; none for an empty one.
fn text(from: &str) -> Result<Option<CString>> {
    if from.is_empty() {
        return Ok(None);
    }
    CString::new(from).map(Some).map_err(|_| Errno::Inval)
}

impl OfDomain for Av {
    fn domain(&self) -> &DomainId {
        &self.domain.id
    }
}

impl fmt::Debug for Av {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain.of("address vector"))
    }
}
