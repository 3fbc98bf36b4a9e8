//! `Buffers`: pools of several size classes, which grow on demand.

use std::sync::Arc;

use selvedge::owned::{Buf, Pool};
use selvedge::{Domain, alloc};

use crate::Error;

/// The size of the smallest class.
const SMALLEST: usize = 4096;
/// The number of buffers of the smallest class in its first pool. A class has a quarter of the
/// buffers of the class with half its size.
const FIRST_COUNT: usize = 64;
/// [`Buffers::pools_max`] of ordinary memory.
const ORDINARY_MAX: usize = 12;
/// [`Buffers::pools_max`] of special memory, which peers map once.
const SPECIAL_MAX: usize = 128;

/// The buffers of one endpoint. Each class has buffers of twice the size of the one before.
#[derive(Debug)]
pub(crate) struct Buffers {
    domain: Arc<dyn Domain>,
    /// Whether peers on the same machine may read the memory in place.
    is_special: bool,
    /// The maximum number of pools that a class keeps. A buffer of a further pool frees its memory
    /// when it is dropped.
    pools_max: usize,
    /// The length of all pools that are kept, in bytes.
    allocated: usize,
    classes: Vec<Vec<Pool>>,
}

impl Buffers {
    pub(super) const fn new(domain: Arc<dyn Domain>) -> Self {
        Self {
            domain,
            is_special: false,
            pools_max: ORDINARY_MAX,
            allocated: 0,
            classes: Vec::new(),
        }
    }

    /// Other buffers of the same domain.
    pub(super) fn of_ordinary_memory(&self) -> Self {
        Self::new(Arc::clone(&self.domain))
    }

    /// Buffers of memory of the domain that peers on the same machine may read in place.
    pub(super) fn of_special_memory(&self) -> Self {
        Self {
            is_special: true,
            pools_max: SPECIAL_MAX,
            ..self.of_ordinary_memory()
        }
    }

    /// The length of the memory that is kept, in bytes.
    pub(crate) const fn allocated(&self) -> usize {
        self.allocated
    }

    /// Takes a buffer of `len` bytes: zeros, or bytes of earlier messages.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub(crate) fn take(&mut self, len: usize) -> Result<Buf, Error> {
        let mut buf = self.take_capacity(len)?;
        buf.set_len(len)
            .map_err(|errno| Error::operation("buffer", errno))?;
        Ok(buf)
    }

    /// Takes a buffer with a capacity of `len` bytes or more.
    fn take_capacity(&mut self, len: usize) -> Result<Buf, Error> {
        let units = len.div_ceil(SMALLEST).max(1);
        let class = units
            .checked_next_power_of_two()
            .ok_or_else(|| Error::operation("buffer", selvedge::Errno::NoMem))?
            .trailing_zeros() as usize;
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Vec::new);
        }
        let pools = &mut self.classes[class];
        // The newest pool is the largest.
        if let Some(buf) = pools.iter().rev().find_map(Pool::take) {
            return Ok(buf);
        }
        let first = FIRST_COUNT
            .checked_shr(2 * class as u32)
            .unwrap_or(0)
            .max(1);
        let count = if first > 1 { first << pools.len() } else { 1 };
        let (size, domain) = (SMALLEST << class, &*self.domain);
        let pool = if self.is_special {
            Pool::special(domain, size, count, &alloc::Attr::default())
        } else {
            Pool::new(domain, size, count)
        };
        let pool = pool.map_err(Error::transport)?;
        let buf = pool.take();
        if pools.len() < self.pools_max {
            pools.push(pool);
            self.allocated += size * count;
        }
        buf.ok_or_else(|| Error::operation("buffer", selvedge::Errno::NoBufs))
    }
}
