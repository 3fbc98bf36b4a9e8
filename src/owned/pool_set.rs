//! `PoolSet`: pools of several buffer sizes, of which the best fitting one serves each request.

use super::{Buf, Pool};
use crate::{Domain, Errno, Error, Result};

/// Pools of several buffer sizes. A request takes the smallest free buffer that is large enough.
///
/// A set is a handle, as its pools are: clones hand out the same buffers.
///
/// # Examples
///
/// ```no_run
/// # fn demo(domain: &dyn selvedge::Domain) -> Result<(), Box<dyn std::error::Error>> {
/// use selvedge::owned::PoolSet;
///
/// let pools = PoolSet::new(domain, &[(64, 1000), (4096, 100), (1 << 20, 4)])?;
/// let mut buf = pools.take(100)?;
/// assert_eq!(buf.capacity(), 4096);
/// buf.write(&[7; 100])?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct PoolSet {
    /// The pools in ascending order of their buffer sizes.
    pools: Box<[Pool]>,
}

impl PoolSet {
    /// Makes a pool for each pair of a buffer size in bytes and a number of buffers.
    ///
    /// # Errors
    /// As [`Pool::new`], and [`Errno::Inval`] for an empty list.
    pub fn new(domain: &dyn Domain, classes: &[(usize, usize)]) -> Result<Self, Error> {
        let pool = |&(size, count): &(usize, usize)| Pool::new(domain, size, count);
        let pools = classes
            .iter()
            .map(pool)
            .collect::<Result<Vec<_>, Error>>()?;
        Self::of(pools)
    }

    /// Makes a set of existing pools, in any order. Pools may have equal buffer sizes; the earlier
    /// one of the list is used first.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an empty list.
    pub fn of(mut pools: Vec<Pool>) -> Result<Self, Error> {
        if pools.is_empty() {
            let message = "a set of no pools has no buffer; pass at least one pool";
            return Err(Error::new(Errno::Inval, message));
        }
        pools.sort_by_key(Pool::buffer_size);
        Ok(Self {
            pools: pools.into(),
        })
    }

    /// Takes the smallest free buffer whose capacity is at least `capacity` bytes. Its length is 0.
    /// When all buffers of the best fitting size are in use, a larger one is taken.
    ///
    /// # Errors
    /// [`Errno::TooSmall`] when `capacity` exceeds [`Self::max_buffer_size`]; [`Errno::NoBufs`]
    /// when all buffers that are large enough are in use.
    pub fn take(&self, capacity: usize) -> Result<Buf> {
        if capacity > self.max_buffer_size() {
            return Err(Errno::TooSmall);
        }
        let first = self
            .pools
            .partition_point(|pool| pool.buffer_size() < capacity);
        let mut fitting = self.pools[first..].iter();
        fitting.find_map(Pool::take).ok_or(Errno::NoBufs)
    }

    /// Returns the capacity of the largest buffers, in bytes.
    pub fn max_buffer_size(&self) -> usize {
        self.pools.last().map_or(0, Pool::buffer_size)
    }

    /// Returns the pools in ascending order of their buffer sizes.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }
}
