//! `Fabric`: an endpoint of a provider, with the objects that it needs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use selvedge::cq::Entry;
use selvedge::{AddressVector, CompletionQueue, Domain, Endpoint, FiAddr, Info};

use super::peers::Peers;
use super::unexpected::Slabs;
use crate::url::Url;

/// An active method of the fabric.
#[derive(Debug)]
pub(super) struct Fabric {
    // Dropped first: a closed endpoint accesses no memory any more.
    pub(super) ep: Arc<dyn Endpoint>,
    pub(super) cq: Arc<dyn CompletionQueue>,
    pub(super) av: Arc<dyn AddressVector>,
    pub(super) domain: Arc<dyn Domain>,
    pub(super) info: Info,
    /// Largest message in bytes that is injected.
    pub(super) inject_size: usize,
    /// The provider may hold an injected message until the next progress call. Network providers do
    /// so: they send the messages of several posts with one system call.
    pub(super) defers_sends: bool,
    pub(super) wait_fd: Option<OwnedFd>,
    /// Array that completions are read into.
    pub(super) entries: Box<[Entry; BATCH]>,
    pub(super) sources: Box<[FiAddr; BATCH]>,
    pub(super) peers: Peers,
    pub(super) slabs: Slabs,
    pub(super) listen: Option<Url>,
}

/// Completions that are read at a time.
pub(super) const BATCH: usize = 32;
