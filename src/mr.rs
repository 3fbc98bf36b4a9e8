//! Memory registration: fi_mr(3).

use std::any::Any;
use std::fmt;

use crate::{Desc, MrAccess};

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
}
