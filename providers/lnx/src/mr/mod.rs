//! Registered memory: a region of lnx consists of one region of each link, with the same key.

mod mirror;

use std::sync::{Arc, Mutex, PoisonError};

use selvedge::{Counter, Desc, Domain, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, mr};
use selvedge_kit::cntr::Cntr;
use selvedge_kit::cq::Progress;
use selvedge_kit::mr::RegionCounters;

use crate::mr::mirror::Mirror;

/// A region of lnx: the same memory, registered with both links.
#[derive(Debug)]
pub(crate) struct Region {
    near: Arc<dyn MemoryRegion>,
    /// `None` for memory without rights of remote access.
    far: Option<Arc<dyn MemoryRegion>>,
    links: [Arc<dyn Domain>; 2],
    /// The counters of the lnx domain's regions, which drive the endpoints of that domain.
    region_counters: Arc<RegionCounters>,
    bound_counters: Mutex<Vec<BoundCounter>>,
}

/// A counter of lnx, and the links' counters that mirror it.
#[derive(Debug)]
struct BoundCounter {
    cntr: Arc<Cntr>,
    mirrors: [Arc<Mirror>; 2],
}

impl BoundCounter {
    fn open(cntr: &Arc<Cntr>, links: &[Arc<dyn Domain>; 2]) -> Result<Self, Error> {
        let [near, far] = links;
        let mirrors = [Mirror::open(cntr, &**near)?, Mirror::open(cntr, &**far)?];
        let bound_counter = Self {
            cntr: Arc::clone(cntr),
            mirrors,
        };
        for mirror in bound_counter.progress() {
            cntr.attach(&mirror)?;
        }
        Ok(bound_counter)
    }

    /// The mirrors, as objects that the counter of lnx drives.
    fn progress(&self) -> [Arc<dyn Progress>; 2] {
        let mirrors = self.mirrors.each_ref();
        mirrors.map(|mirror| Arc::clone(mirror) as Arc<dyn Progress>)
    }
}

impl Drop for BoundCounter {
    fn drop(&mut self) {
        for mirror in self.progress() {
            self.cntr.detach(&mirror);
        }
    }
}

impl MemoryRegion for Region {
    fn key(&self) -> u64 {
        self.near.key()
    }

    fn desc(&self) -> Desc {
        Desc::NONE
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, access: MrAccess) -> Result<(), Error> {
        let Some(far) = &self.far else {
            let message = "cannot bind a counter: the region has no remote access";
            return Err(Error::new(Errno::Inval, message));
        };
        let cntr = self.region_counters.add_counter(cntr)?;
        let mut bound_counters = self
            .bound_counters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // An operation that reads and writes counts once at a counter that is bound for both. The
        // link counts it once at the mirror, because both bindings of the counter use one mirror.
        let existing = bound_counters
            .iter()
            .position(|it| Arc::ptr_eq(&it.cntr, &cntr));
        let at = match existing {
            Some(at) => at,
            None => {
                bound_counters.push(BoundCounter::open(&cntr, &self.links)?);
                bound_counters.len() - 1
            }
        };
        let [near_mirror, far_mirror] = &bound_counters[at].mirrors;
        self.near.bind_counter(near_mirror.counter(), access)?;
        far.bind_counter(far_mirror.counter(), access)
    }
}

/// The registration modes of both links for an lnx domain of `mode`. Both links use virtual
/// addresses, or both use offsets. If the provider chooses the keys, the near link chooses them;
/// the far link always takes the key that [`register`] requests.
pub(crate) fn link_modes(mode: MrMode) -> [MrMode; 2] {
    let virt = if mode.intersects(MrMode::VIRT_ADDR | MrMode::BASIC) {
        MrMode::VIRT_ADDR
    } else {
        MrMode::empty()
    };
    [
        virt | mode.intersection(MrMode::PROV_KEY | MrMode::BASIC),
        virt,
    ]
}

/// Registers memory with both links.
///
/// # Errors
/// The links' errors; nothing is registered then.
///
/// # Safety
/// As [`Domain::reg`].
#[expect(unsafe_code, reason = "the caller's promise about the memory")]
pub(crate) unsafe fn register(
    links: [Arc<dyn Domain>; 2],
    region_counters: &Arc<RegionCounters>,
    memory: &[IovMut],
    attr: &mr::Attr,
) -> Result<Arc<dyn MemoryRegion>, Error> {
    let [near, far] = &links;
    // SAFETY: passed on from the caller; the link's region lives no longer than the returned region
    // of lnx.
    let near = unsafe { near.reg(memory, attr)? };
    let is_remote = attr
        .access
        .intersects(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
    let far = if is_remote {
        let mut attr = attr.clone();
        attr.requested_key = near.key();
        // SAFETY: as above.
        Some(unsafe { far.reg(memory, &attr)? })
    } else {
        None
    };
    Ok(Arc::new(Region {
        near,
        far,
        links,
        region_counters: Arc::clone(region_counters),
        bound_counters: Mutex::default(),
    }))
}
