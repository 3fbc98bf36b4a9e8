//! Registered memory.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use selvedge::{Counter, Desc, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, Result, mr};
use selvedge_abi::{FidMr, MrAttr, number};

use super::cntr::{Cntr, bound_cntr};
use super::state::DomainState;
use crate::endpoint::Endpoint;
use crate::object::{Handle, call};

/// A region that is registered with the library.
pub(crate) struct Region {
    handle: Handle<FidMr>,
    key: u64,
    desc: Desc,
    domain: Arc<DomainState>,
    /// The endpoint that the region is bound to, which closes after the region.
    _endpoint: Option<Arc<Endpoint>>,
    /// The counters that the region is bound to, which close after the region.
    cntrs: Mutex<Vec<Arc<Cntr>>>,
}

impl Region {
    /// Registers memory. `endpoints` are the open endpoints of the domain.
    ///
    /// # Safety
    /// As [`selvedge::Domain::reg`].
    pub(crate) unsafe fn open(
        domain: &Arc<DomainState>,
        endpoints: Vec<Arc<Endpoint>>,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Self, Error> {
        let fid = domain.ptr_or_error()?;
        if !domain.has_hmem {
            attr.check_system_memory(&domain.describe("the domain"))?;
        }
        let requested = MrAttr {
            mr_iov: region.as_ptr().cast(),
            iov_count: region.len(),
            access: attr.access.bits(),
            offset: attr.offset,
            requested_key: requested_key(domain, attr),
            context: ptr::null_mut(),
            auth_key_size: 0,
            auth_key: ptr::null_mut(),
            iface: attr.iface as u32,
            device: attr.device,
            hmem_data: ptr::null_mut(),
            page_size: 0,
            base_mr: ptr::null(),
            sub_mr_cnt: 0,
        };
        let handle = Handle::open(domain.library(), domain.describe("a region"), |out| {
            let (requested, flags) = (&raw const requested, attr.flags.bits());
            // SAFETY: the domain is open, the attributes live during the call, and the caller
            // vouches for the memory.
            unsafe { call!(fid, (*fid).mr, regattr, requested, flags, out) }
        })?;
        let endpoint = enable(domain, endpoints, &handle)?;
        let own = handle.ptr_or_error()?;
        // SAFETY: the region is open, and these fields are public.
        let (key, word) = unsafe { ((*own).key, (*own).mem_desc) };
        Ok(Self {
            handle,
            key,
            desc: domain.domain_tag.wrap(word)?,
            domain: Arc::clone(domain),
            _endpoint: endpoint,
            cntrs: Mutex::default(),
        })
    }
}

/// Returns the key to request from the library. This crate chooses the keys of regions without
/// remote access, because these must not collide either.
fn requested_key(domain: &DomainState, attr: &mr::Attr) -> u64 {
    let remote = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    if attr.access.intersects(remote) {
        attr.requested_key
    } else {
        domain.next_local_key()
    }
}

/// Binds a region to the domain's only endpoint and enables it, if the provider requires that.
fn enable(
    domain: &DomainState,
    mut open: Vec<Arc<Endpoint>>,
    region: &Handle<FidMr>,
) -> Result<Option<Arc<Endpoint>>, Error> {
    if !domain
        .mr_mode
        .intersects(MrMode::ENDPOINT | MrMode::RMA_EVENT)
    {
        return Ok(None);
    }
    let fid = region.fid_or_error()?;
    let mut endpoint = None;
    if domain.mr_mode.contains(MrMode::ENDPOINT) {
        let count = open.len();
        let only = open.pop().filter(|_| count == 1).ok_or_else(|| {
            let message = format!("a region: the provider binds regions to the only endpoint, and the domain has {count} endpoints");
            Error::new(Errno::NoSys, domain.describe(&message))
        })?;
        let other = only.fid()?;
        // SAFETY: both objects are open.
        let code = unsafe { call!(fid, (*fid).ops, bind, other, 0) };
        check(domain, "binding a region", code)?;
        endpoint = Some(only);
    }
    let (command, none) = (number::control::ENABLE, ptr::null_mut());
    // SAFETY: the region is open, and the command has no argument.
    let code = unsafe { call!(fid, (*fid).ops, control, command, none) };
    check(domain, "enabling a region", code)?;
    Ok(endpoint)
}

fn check(domain: &DomainState, action: &str, code: i32) -> Result<(), Error> {
    match code {
        0.. => Ok(()),
        negative => Err(domain
            .library()
            .call_error(domain.describe(action), negative)),
    }
}

impl MemoryRegion for Region {
    fn key(&self) -> u64 {
        self.key
    }

    fn desc(&self) -> Desc {
        self.desc
    }

    /// Binds a counter. Fails if the library requires that counters are bound before a region is
    /// enabled, because [`Region::open`] has enabled the region.
    fn bind_counter(&self, cntr: &Arc<dyn Counter>, access: MrAccess) -> Result<(), Error> {
        let cntr = bound_cntr(&self.domain, "counter of a region", cntr)?;
        let (fid, other) = (self.handle.fid_or_error()?, cntr.fid()?);
        let flags = access.bits();
        // SAFETY: both objects are open, and the counter stays as long as the region.
        let code = unsafe { call!(fid, (*fid).ops, bind, other, flags) };
        check(&self.domain, "binding a counter to a region", code)?;
        let mut cntrs = self.cntrs.lock().unwrap_or_else(PoisonError::into_inner);
        cntrs.push(cntr);
        Ok(())
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("region {:#x} at {:#x}", self.key, self.handle.id());
        f.write_str(&self.domain.describe(&name))
    }
}
