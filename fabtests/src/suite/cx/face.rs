//! The faces of the object model that tests are run over.

use std::fmt;
use std::sync::Arc;

use selvedge::trigger::Ticket;
use selvedge::{Address, EpOption, Errno, FiAddr, SharedReceives};
use serde::{Deserialize, Serialize};

use super::post::{Done, Post};
use super::raw::{Raw, When};

/// Which face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The traits themselves.
    Raw,
    /// `selvedge::owned`, polled.
    Owned,
    /// `selvedge::owned`, awaited.
    Async,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Owned => "owned",
            Self::Async => "async",
        })
    }
}

/// An endpoint as one face shows it. It keeps the buffers of what is posted.
pub(super) trait Face {
    /// What it is called.
    fn address(&self) -> Result<Address, Errno>;

    /// The index of a peer.
    fn insert(&self, peer: &Address) -> Result<FiAddr, Errno>;

    /// Posts something under a context that nothing outstanding has.
    fn post(&mut self, context: u64, post: &Post) -> Result<(), Errno>;

    /// Tries to take a post back.
    fn cancel(&mut self, context: u64) -> Result<(), Errno>;

    /// Sets an option of the endpoint.
    fn set(&self, option: EpOption) -> Result<(), Errno>;

    /// Overwrites the bytes of a send that is outstanding; the raw face alone.
    fn overwrite(&mut self, _context: u64) {}

    /// What an entry says that somebody else has read; the raw face alone.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn taken(&mut self, entry: selvedge::cq::Entry) -> anyhow::Result<Done> {
        Err(anyhow::anyhow!("{entry:?} was read past this face"))
    }

    /// Moves things on, and takes a completion if there is one.
    ///
    /// # Errors
    /// When something completes that must not, or beside its buffer.
    fn poll(&mut self) -> anyhow::Result<Option<Done>>;

    /// Moves things on.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn drive(&mut self) -> anyhow::Result<()>;

    /// Posts something that waits for a counter; the raw face alone.
    fn defer(&mut self, _context: u64, _post: &Post, _when: When) -> Result<Ticket, Errno> {
        Err(Errno::NoSys)
    }

    /// Posts receives here from now on, or at the endpoint again; the raw face alone.
    fn share(&mut self, _srx: Option<Arc<dyn SharedReceives>>) {}

    /// The objects, of the raw face.
    fn raw(&self) -> Option<&Raw> {
        None
    }
}
