//! Pools: where buffers come from and return to.

#![expect(
    unsafe_code,
    reason = "registration is a promise about the slab's lifetime"
)]

use std::fmt;
use std::sync::{Arc, Mutex};

use super::buf::Buf;
use super::pages::Pages;
use super::{lock, sole};
use crate::{Desc, Domain, Errno, Error, IovMut, MemoryRegion, MrAccess, MrMode, mr};

/// Buffers start on their own cache lines, so that neighbours in different hands do not slow each
/// other down.
const BUFFER_ALIGN: usize = 64;

/// A fixed number of equal buffers in one page-aligned slab, registered once where the domain
/// wants local memory registered ([`MrMode::LOCAL`]).
///
/// A pool is a handle: clones give out the same buffers. The slab lives as long as the last handle
/// or buffer. The domain may be dropped before it.
///
/// # Examples
///
/// ```no_run
/// # fn demo(domain: &dyn selvedge::Domain) -> Result<(), Box<dyn std::error::Error>> {
/// use selvedge::{Errno, owned::Pool};
///
/// let pool = Pool::new(domain, 4096, 64)?;
/// let mut buf = pool.take().ok_or(Errno::NoBufs)?;
/// buf.write(b"hello")?;
/// assert_eq!(&buf[..], b"hello");
/// drop(buf); // the 64th buffer is back
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Pool {
    slab: Arc<Slab>,
}

impl Pool {
    /// Makes a pool of `count` buffers of `size` bytes each.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a size or count of zero, or a count above `u32::MAX`;
    /// [`Errno::NoMem`] when there is no such memory; the domain's, when it wants memory
    /// registered and does not register this.
    pub fn new(domain: &dyn Domain, size: usize, count: usize) -> Result<Self, Error> {
        Ok(Self {
            slab: Arc::new(Slab::new(domain, size, count)?),
        })
    }

    /// Takes a buffer of length 0; `None` when all of them are in use.
    pub fn take(&self) -> Option<Buf> {
        let index = lock(&self.slab.free).pop()?;
        Some(Buf::new(Arc::clone(&self.slab), index))
    }

    /// Bytes that each buffer holds.
    pub fn buffer_size(&self) -> usize {
        self.slab.size
    }

    /// Buffers that [`Self::take`] could hand out now.
    pub fn available(&self) -> usize {
        lock(&self.slab.free).len()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("buffer_size", &self.buffer_size())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// The memory of a pool, and the list of the buffers that nobody has.
pub(super) struct Slab {
    // Before the memory, so that it is deregistered first.
    region: Option<Arc<dyn MemoryRegion>>,
    pages: Pages,
    size: usize,
    stride: usize,
    free: Mutex<Vec<u32>>,
}

impl Slab {
    fn new(domain: &dyn Domain, size: usize, count: usize) -> Result<Self, Error> {
        let (stride, len) = layout(size, count)?;
        let pages = Pages::new(len, "a pool")?;
        let wanted = domain.mr_mode().contains(MrMode::LOCAL);
        let region = wanted.then(|| register(domain, &pages, len)).transpose()?;
        let last = u32::try_from(count).expect("checked by layout");
        Ok(Self {
            region,
            pages,
            size,
            stride,
            // Taken from the end: the lowest buffer first.
            free: Mutex::new((0..last).rev().collect()),
        })
    }

    /// The first byte of a buffer.
    pub(super) fn base(&self, index: u32) -> *mut u8 {
        self.pages.base().wrapping_add(index as usize * self.stride)
    }

    /// Bytes of a buffer.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// What local operations name the memory by.
    pub(super) fn desc(&self) -> Desc {
        self.region
            .as_ref()
            .map_or(Desc::NONE, |region| region.desc())
    }

    /// Takes a buffer back.
    pub(super) fn release(&self, index: u32) {
        lock(&self.free).push(index);
    }
}

/// Distance between buffers and bytes in all.
fn layout(size: usize, count: usize) -> Result<(usize, usize), Error> {
    let refuse = |errno| Error::new(errno, format!("a pool of {count} buffers of {size} bytes"));
    if size == 0 || count == 0 || u32::try_from(count).is_err() {
        return Err(refuse(Errno::Inval));
    }
    let stride = size
        .checked_next_multiple_of(BUFFER_ALIGN)
        .ok_or_else(|| refuse(Errno::NoMem))?;
    let len = stride
        .checked_mul(count)
        .filter(|&len| isize::try_from(len).is_ok())
        .ok_or_else(|| refuse(Errno::NoMem))?;
    Ok((stride, len))
}

/// Registers the slab for local use alone.
fn register(
    domain: &dyn Domain,
    pages: &Pages,
    len: usize,
) -> Result<Arc<dyn MemoryRegion>, Error> {
    let attr = mr::Attr {
        access: MrAccess::SEND | MrAccess::RECV | MrAccess::READ | MrAccess::WRITE,
        ..mr::Attr::default()
    };
    let region = [IovMut::from_raw(pages.base().cast(), len)];
    // SAFETY: the slab drops the only handle of the region before the pages, and without remote
    // rights nobody touches the bytes but the operations that a buffer is moved into.
    sole(unsafe { domain.reg(&region, &attr) }?, "memory region")
}
