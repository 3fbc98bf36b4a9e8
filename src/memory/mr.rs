//! Memory registration: fi_mr(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Counter, Desc, Errno, Error, MrAccess};

/// Attributes of a memory registration (`struct fi_mr_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// Access rights.
    pub access: MrAccess,
    /// The requested key, where the application chooses keys. The key of a region without remote
    /// rights is ignored, and does not collide with other keys.
    pub requested_key: u64,
    /// The offset at which remote accesses start.
    pub offset: u64,
}

/// Registered memory. Dropping the last handle revokes all rights.
pub trait MemoryRegion: Any + fmt::Debug + Send + Sync {
    /// Returns the key with which peers access the region (fi_mr_key(3)).
    fn key(&self) -> u64;
    /// Returns the descriptor for local operations (fi_mr_desc(3)).
    fn desc(&self) -> Desc;

    /// Binds a counter that counts accesses of peers to the region until the region is dropped
    /// (fi_mr_bind(3)). [`MrAccess::REMOTE_WRITE`] counts writes and atomics that change the
    /// region, and [`MrAccess::REMOTE_READ`] counts reads and atomics that return earlier values.
    /// An operation counts once, also if several of its segments are in the region, or both bits
    /// apply to the operation.
    ///
    /// Reading the counter drives progress of every endpoint of the domain.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no such counters. [`Errno::Inval`] for other bits, for an
    /// event that already has a counter, for a counter of another provider, and for a region
    /// without remote rights.
    fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> Result<(), Error> {
        let _ = (cntr, events);
        let text =
            format!("cannot bind a counter to {self:?}: the provider has no counters of regions");
        Err(Error::new(Errno::NoSys, text))
    }
}
