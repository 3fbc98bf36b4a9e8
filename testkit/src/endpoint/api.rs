//! `EndpointApi`: the interface to an endpoint under test, over the raw API or the safe layer.

use std::fmt;
use std::sync::Arc;

use anyhow::anyhow;
use selvedge::cq::Entry;
use selvedge::trigger::WorkId;
use selvedge::{
    Address, AddressVector, CompletionQueue, Counter, Domain, Endpoint, EpOption, Errno, FiAddr,
    SharedReceives,
};

use super::post::{Completion, Post};

/// An endpoint under test, over one API. It keeps the buffers of outstanding operations.
pub trait EndpointApi: fmt::Debug {
    /// The address of the endpoint.
    fn address(&self) -> Result<Address, Errno>;

    /// Inserts a peer and returns its index.
    fn insert(&self, peer: &Address) -> Result<FiAddr, Errno>;

    /// Posts an operation with a context that no outstanding operation has. A successful post may
    /// take the bytes out of `post`; a failed post leaves them.
    fn post(&mut self, context: u64, post: &mut Post) -> Result<(), Errno>;

    /// Tries to cancel an operation.
    fn cancel(&mut self, context: u64) -> Result<(), Errno>;

    /// Sets an option of the endpoint.
    fn set(&self, option: EpOption) -> Result<(), Errno>;

    /// Overwrites the bytes of an outstanding send. Raw API only.
    fn overwrite(&mut self, _context: u64) {}

    /// Processes an entry that was read from the queue by other code. Raw API only.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn complete(&mut self, entry: Entry) -> anyhow::Result<Completion> {
        Err(anyhow!(
            "{entry:?} was read by other code, which this API does not support"
        ))
    }

    /// Drives progress and reads a completion, if there is one.
    ///
    /// # Errors
    /// When an unexpected operation completes, or bytes outside its buffer were written.
    fn poll(&mut self) -> anyhow::Result<Option<Completion>>;

    /// Drives progress.
    ///
    /// # Errors
    /// As [`Self::poll`].
    fn progress(&mut self) -> anyhow::Result<()>;

    /// Posts a deferred operation. Raw API only.
    fn defer(
        &mut self,
        _context: u64,
        _post: &mut Post,
        _trigger: Trigger,
    ) -> Result<WorkId, Errno> {
        Err(Errno::NoSys)
    }

    /// Sets the shared receive context for later receives; `None` for the endpoint. Raw API only.
    fn post_receives_to(&mut self, _srx: Option<Arc<dyn SharedReceives>>) {}

    /// The objects behind the endpoint. Raw API only.
    fn raw_objects(&self) -> Option<&RawObjects> {
        None
    }
}

/// The objects behind a raw endpoint.
#[derive(Debug)]
pub struct RawObjects {
    pub ep: Arc<dyn Endpoint>,
    pub cq: Arc<dyn CompletionQueue>,
    pub av: Option<Arc<dyn AddressVector>>,
}

/// The trigger of a deferred post.
#[derive(Clone, Debug)]
pub struct Trigger {
    pub domain: Arc<dyn Domain>,
    pub cntr: Arc<dyn Counter>,
    pub threshold: u64,
    pub notify: Notify,
}

/// Where the completion of deferred work is reported.
#[derive(Clone, Debug)]
pub enum Notify {
    Endpoint,
    Counter(Option<Arc<dyn Counter>>),
}
