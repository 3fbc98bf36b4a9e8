//! What an endpoint of a test is posted through: the traits of the contract, or the safe layer.

use std::fmt;
use std::sync::Arc;

use anyhow::anyhow;
use selvedge::cq::Entry;
use selvedge::trigger::WorkId;
use selvedge::{Address, EpOption, Errno, FiAddr, SharedReceives};

use super::post::{Completion, Post};
use super::raw::{RawEndpoint, Trigger};

/// An endpoint as one API shows it. It keeps the buffers of what is posted.
pub trait EndpointApi: fmt::Debug {
    /// What it is called.
    fn address(&self) -> Result<Address, Errno>;

    /// The index of a peer.
    fn insert(&self, peer: &Address) -> Result<FiAddr, Errno>;

    /// Posts something under a context that nothing outstanding has. What is posted may take its bytes
    /// along; what is refused has them still.
    fn post(&mut self, context: u64, post: &mut Post) -> Result<(), Errno>;

    /// Tries to take a post back.
    fn cancel(&mut self, context: u64) -> Result<(), Errno>;

    /// Sets an option of the endpoint.
    fn set(&self, option: EpOption) -> Result<(), Errno>;

    /// Overwrites the bytes of a send that is outstanding; the raw API alone.
    fn overwrite(&mut self, _context: u64) {}

    /// What an entry says that somebody else has read; the raw API alone.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn complete(&mut self, entry: Entry) -> anyhow::Result<Completion> {
        Err(anyhow!("{entry:?} was read past this API"))
    }

    /// Moves things on, and takes a completion if there is one.
    ///
    /// # Errors
    /// When something completes that must not, or beside its buffer.
    fn poll(&mut self) -> anyhow::Result<Option<Completion>>;

    /// Moves things on.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn progress(&mut self) -> anyhow::Result<()>;

    /// Posts something that waits for a counter; the raw API alone.
    fn defer(&mut self, _context: u64, _post: &mut Post, _when: Trigger) -> Result<WorkId, Errno> {
        Err(Errno::NoSys)
    }

    /// Posts receives here from now on, or at the endpoint again; the raw API alone.
    fn post_receives_to(&mut self, _srx: Option<Arc<dyn SharedReceives>>) {}

    /// The objects; the raw API alone.
    fn raw(&self) -> Option<&RawEndpoint> {
        None
    }
}
