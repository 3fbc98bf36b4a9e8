//! `Buffers`: pools of several size classes, which grow on demand.

use std::sync::Arc;

use selvedge::Domain;
use selvedge::owned::{Buf, Pool};

use crate::Error;

/// The size of the smallest class.
const SMALLEST: usize = 4096;
/// The number of buffers of the smallest class in its first pool. A class has a quarter of the
/// buffers of the class with half its size.
const FIRST_COUNT: usize = 64;
/// The maximum number of pools that a class keeps. A buffer of a further pool frees its memory when
/// it is dropped.
const POOLS_MAX: usize = 12;

/// The buffers of one endpoint. Each class has buffers of twice the size of the one before.
#[derive(Debug)]
pub(super) struct Buffers {
    domain: Arc<dyn Domain>,
    classes: Vec<Vec<Pool>>,
}

impl Buffers {
    pub(super) const fn new(domain: Arc<dyn Domain>) -> Self {
        Self {
            domain,
            classes: Vec::new(),
        }
    }

    /// Takes a buffer with a capacity of `len` bytes or more.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub(super) fn take(&mut self, len: usize) -> Result<Buf, Error> {
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
        let pool = Pool::new(&*self.domain, SMALLEST << class, count).map_err(Error::transport)?;
        let buf = pool.take();
        if pools.len() < POOLS_MAX {
            pools.push(pool);
        }
        buf.ok_or_else(|| Error::operation("buffer", selvedge::Errno::NoBufs))
    }
}
