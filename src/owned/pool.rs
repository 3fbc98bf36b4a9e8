//! Pools: where buffers come from and return to.

#![expect(
    unsafe_code,
    reason = "the address of the slab goes to other threads with it"
)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use super::buf::{Buf, Memory};
use super::free_list::{Free, FreeList};
use crate::handle::sole;
use crate::{Allocation, Desc, Domain, Errno, Error, MrAccess, MrMode, alloc};

/// Buffers start on their own cache lines, so that neighbours in different hands do not slow each
/// other down.
const BUFFER_ALIGN: usize = 64;

/// A fixed number of equal buffers in one page-aligned slab, registered once where the domain
/// wants local memory registered ([`crate::MrMode::LOCAL`]).
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
        let (stride, len) = layout(size, count)?;
        let memory = alloc::ordinary(domain, len, &alloc::Attr::default())?;
        Ok(Self {
            slab: Arc::new(Slab::new(domain, memory, (size, stride, count))),
        })
    }

    /// Makes such a pool in memory of the domain's ([`Domain::alloc`]). Where that is special, peers
    /// of the machine copy large messages right out of it, without a system call. Peers never write
    /// to it.
    ///
    /// # Errors
    /// As [`Self::new`], and [`Errno::Inval`] for remote rights: a [`super::Window`] is for those.
    pub fn special(
        domain: &dyn Domain,
        size: usize,
        count: usize,
        attr: &alloc::Attr,
    ) -> Result<Self, Error> {
        let (stride, len) = layout(size, count)?;
        let remote = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        if attr.access.intersects(remote) {
            let what = format!("a pool with the rights {:?}", attr.access);
            return Err(Error::new(Errno::Inval, what));
        }
        let memory = sole(domain.alloc(len, attr)?, "allocation")?;
        Ok(Self {
            slab: Arc::new(Slab::new(domain, memory, (size, stride, count))),
        })
    }

    /// Takes a buffer of length 0; `None` when all of them are in use.
    #[inline]
    pub fn take(&self) -> Option<Buf> {
        let memory = match self.slab.free.take()? {
            Free::Released(memory) => memory,
            Free::Untouched(index) => Memory::new(&self.slab, index),
        };
        Some(Buf::new(memory, Arc::clone(&self.slab)))
    }

    /// Bytes that each buffer holds.
    pub fn buffer_size(&self) -> usize {
        self.slab.size
    }

    /// Buffers that [`Self::take`] could hand out now.
    pub fn available(&self) -> usize {
        self.slab.free.len()
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
    /// Keeps the memory.
    _memory: Arc<dyn Allocation>,
    /// Whether it is registered for local operations.
    is_registered: bool,
    /// The first byte and the descriptor, so that no dynamic call is needed for them.
    base: Base,
    desc: Desc,
    size: usize,
    stride: usize,
    free: FreeList<Box<Memory>>,
}

/// The first byte of the slab, or of a buffer.
#[derive(Clone, Copy)]
pub(super) struct Base(NonNull<u8>);

// SAFETY: an address; who uses which bytes is decided by who has the buffer.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Base {
    /// The byte so many behind this one, in the same slab.
    pub(super) fn at(self, offset: usize) -> Self {
        let address = self.0.as_ptr().wrapping_add(offset);
        Self(NonNull::new(address).expect("memory is never at address zero"))
    }

    #[inline]
    pub(super) const fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }
}

impl Slab {
    fn new(
        domain: &dyn Domain,
        memory: Arc<dyn Allocation>,
        (size, stride, count): (usize, usize, usize),
    ) -> Self {
        let count = u32::try_from(count).expect("checked by layout");
        Self {
            base: Base(NonNull::new(memory.base()).expect("memory is never at address zero")),
            desc: memory.desc(),
            is_registered: domain.mr_mode().contains(MrMode::LOCAL),
            _memory: memory,
            size,
            stride,
            free: FreeList::new(count),
        }
    }

    /// The first byte of a buffer.
    pub(super) fn base(&self, index: u32) -> Base {
        self.base.at(index as usize * self.stride)
    }

    /// Bytes of a buffer.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether it is registered for local operations.
    pub(super) fn is_registered(&self) -> bool {
        self.is_registered
    }

    /// What local operations name the memory by.
    pub(super) fn desc(&self) -> Desc {
        self.desc
    }

    /// Takes the memory of a buffer back.
    #[inline]
    pub(super) fn release(&self, memory: Box<Memory>) {
        self.free.release(memory);
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
