//! `Siblings`: the open endpoints of one domain, by name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::peers::name::Name;

/// The state of an open endpoint that the other endpoints of its domain use.
#[derive(Debug)]
pub(crate) struct Sibling {
    is_open: AtomicBool,
    /// Whether the endpoint counts operations of peers on its memory.
    counts_peers: bool,
}

/// The open endpoints of a domain, by name.
#[derive(Debug, Default)]
pub(crate) struct Siblings(Mutex<FxHashMap<Name, Arc<Sibling>>>);

impl Sibling {
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Whether the endpoint counts operations of peers on its memory.
    #[inline]
    pub(crate) fn counts_peers(&self) -> bool {
        self.counts_peers
    }
}

impl Siblings {
    /// Adds an endpoint that has just bound its name.
    pub(crate) fn add(&self, name: &Name, counts_peers: bool) {
        let sibling = Arc::new(Sibling {
            is_open: AtomicBool::new(true),
            counts_peers,
        });
        self.lock().insert(name.clone(), sibling);
    }

    /// Removes an endpoint that closes and releases its name.
    pub(crate) fn remove(&self, name: &Name) {
        if let Some(sibling) = self.lock().remove(name) {
            sibling.is_open.store(false, Ordering::Release);
        }
    }

    /// Finds the open endpoint of this domain that has a name.
    pub(crate) fn find(&self, name: &Name) -> Option<Arc<Sibling>> {
        self.lock().get(name).map(Arc::clone)
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<Name, Arc<Sibling>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
