//! Memory registration: fi_mr(3).

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{Counter, Desc, Errno, Error, MrAccess};

/// How memory is registered (`struct fi_mr_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// Who may do what with it.
    pub access: MrAccess,
    /// The wanted key, where the application chooses keys. It means nothing for a region without
    /// remote rights: no two of those collide.
    pub requested_key: u64,
    /// The offset that remote accesses start from.
    pub offset: u64,
}

/// Registered memory; dropping it ends every right over it.
pub trait MemoryRegion: Any + fmt::Debug + Send + Sync {
    /// What a peer names the region by (fi_mr_key(3)).
    fn key(&self) -> u64;
    /// What local operations name the region by (fi_mr_desc(3)).
    fn desc(&self) -> Desc;

    /// Has a counter count what peers do with the region from now on, until it is dropped
    /// (fi_mr_bind(3)): [`MrAccess::REMOTE_WRITE`] stands for writes and for atomics that change it,
    /// [`MrAccess::REMOTE_READ`] for reads and for atomics that bring earlier values back. An
    /// operation is one event, however many of its places are in the region; with both bits, too.
    ///
    /// Reading the counter drives every endpoint of the domain, whichever the peers use.
    ///
    /// # Errors
    /// [`Errno::NoSys`] where the provider has no such counters. [`Errno::Inval`] for other bits, for
    /// an event that has its counter already, for a counter of another provider, and for a region
    /// that peers may not use.
    fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        let _ = (cntr, what);
        let what = format!("{self:?} has no counters of regions");
        Err(Error::new(Errno::NoSys, what))
    }
}
