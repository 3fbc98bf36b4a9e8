//! `Pool`: a fixed number of equal buffers in registered memory.

use std::fmt;
use std::sync::Arc;

use super::buf::{Buf, Slab};
use crate::objects::allocate_ordinary;
use crate::objects::handle::sole;
use crate::{Domain, Errno, Error, MrAccess, alloc};

/// Alignment of buffers: each begins on its own cache line, so that neighbours with different
/// owners do not share one.
const BUFFER_ALIGN: usize = 64;

/// A fixed number of equal buffers in one page-aligned slab, registered once where the domain
/// wants local memory registered ([`crate::MrMode::LOCAL`]).
///
/// A pool is a handle; clones hand out the same buffers. The slab lives until the last handle and
/// the last buffer are dropped. The domain may be dropped earlier.
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
/// drop(buf); // returns to the pool
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
    /// [`Errno::NoMem`] when the memory cannot be allocated; those of [`Domain::reg`], where the domain
    /// requires registration.
    pub fn new(domain: &dyn Domain, size: usize, count: usize) -> Result<Self, Error> {
        let (stride, len) = layout(size, count)?;
        let memory = allocate_ordinary(domain, len, &alloc::Attr::default())?;
        Ok(Self {
            slab: Arc::new(Slab::new(domain, memory, (size, stride, count))),
        })
    }

    /// Makes a pool in memory that the domain allocates ([`Domain::alloc`]). Where that is special
    /// memory, peers on the same machine copy large messages directly out of it, without a system
    /// call. Peers never write to it.
    ///
    /// # Errors
    /// As [`Self::new`], and [`Errno::Inval`] for remote access rights: use a
    /// [`super::SharedRegion`].
    pub fn special(
        domain: &dyn Domain,
        size: usize,
        count: usize,
        attr: &alloc::Attr,
    ) -> Result<Self, Error> {
        let (stride, len) = layout(size, count)?;
        let remote = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        if attr.access.intersects(remote) {
            let message = format!("a pool with the rights {:?}", attr.access);
            return Err(Error::new(Errno::Inval, message));
        }
        let memory = sole(domain.alloc(len, attr)?, "allocation")?;
        Ok(Self {
            slab: Arc::new(Slab::new(domain, memory, (size, stride, count))),
        })
    }

    /// Takes a buffer of length 0; `None` when all of them are in use.
    #[inline]
    pub fn take(&self) -> Option<Buf> {
        Slab::take(&self.slab)
    }

    /// The capacity of each buffer, in bytes.
    pub fn buffer_size(&self) -> usize {
        self.slab.size()
    }

    /// The number of free buffers.
    pub fn available(&self) -> usize {
        self.slab.available()
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

/// The distance between buffers, and the length of the slab, in bytes.
fn layout(size: usize, count: usize) -> Result<(usize, usize), Error> {
    let error = |errno| Error::new(errno, format!("a pool of {count} buffers of {size} bytes"));
    if size == 0 || count == 0 || u32::try_from(count).is_err() {
        return Err(error(Errno::Inval));
    }
    let stride = size
        .checked_next_multiple_of(BUFFER_ALIGN)
        .ok_or_else(|| error(Errno::NoMem))?;
    let len = stride
        .checked_mul(count)
        .filter(|&len| isize::try_from(len).is_ok())
        .ok_or_else(|| error(Errno::NoMem))?;
    Ok((stride, len))
}
