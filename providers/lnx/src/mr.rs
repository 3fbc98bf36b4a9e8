//! Registered memory: a region of each link, under one key.

use std::sync::Arc;

use selvedge::{
    Counter, Desc, Domain, Errno, Error, Info, IovMut, MemoryRegion, MrAccess, MrMode, mr,
};
use selvedge_kit::mr::Watchers;

/// A region of both links.
#[derive(Debug)]
pub(crate) struct Region {
    near: Arc<dyn MemoryRegion>,
    /// None for memory that peers may not use.
    far: Option<Arc<dyn MemoryRegion>>,
    /// The counters of both, which drive what is around the links, too.
    watchers: Arc<Watchers>,
}

impl MemoryRegion for Region {
    fn key(&self) -> u64 {
        self.near.key()
    }

    fn desc(&self) -> Desc {
        Desc::NONE
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        let Some(far) = &self.far else {
            let what = "a counter for a region that peers may not use";
            return Err(Error::new(Errno::Inval, what));
        };
        self.near.bind_counter(cntr, what)?;
        far.bind_counter(cntr, what)?;
        self.watchers.watch(cntr).map(drop)
    }
}

/// How the links have to address and name memory for a domain of ours with this mode: alike, and
/// under keys that the near one makes if it is the provider that makes them.
pub(crate) fn set_modes(mode: MrMode, [near, far]: &mut [Info; 2]) {
    let virt = match mode.intersects(MrMode::VIRT_ADDR | MrMode::BASIC) {
        true => MrMode::VIRT_ADDR,
        false => MrMode::empty(),
    };
    near.domain_attr.mr_mode = virt | mode.intersection(MrMode::PROV_KEY | MrMode::BASIC);
    far.domain_attr.mr_mode = virt;
}

/// Registers memory with both links.
///
/// # Errors
/// The links'; nothing is registered then.
///
/// # Safety
/// As [`Domain::reg`].
#[expect(unsafe_code, reason = "the caller's promise about the memory")]
pub(crate) unsafe fn register(
    [near, far]: [&dyn Domain; 2],
    watchers: &Arc<Watchers>,
    memory: &[IovMut],
    attr: &mr::Attr,
) -> Result<Arc<dyn MemoryRegion>, Error> {
    // SAFETY: passed on from the caller; the region lives no longer than ours.
    let near = unsafe { near.reg(memory, attr)? };
    let is_remote = attr
        .access
        .intersects(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
    let far = match is_remote {
        true => {
            let mut attr = attr.clone();
            attr.requested_key = near.key();
            // SAFETY: as above.
            Some(unsafe { far.reg(memory, &attr)? })
        }
        false => None,
    };
    Ok(Arc::new(Region {
        near,
        far,
        watchers: Arc::clone(watchers),
    }))
}
