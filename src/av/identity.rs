//! `Identity`: the identity of an address vector. An index of one vector has no meaning in another.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of an address vector. Clones are equal, and two vectors never have the same one.
#[derive(Clone)]
pub struct Identity(Arc<str>);

impl Identity {
    /// Creates the identity of a new vector of `domain`. Error texts name the domain by its `Debug`
    /// text.
    pub fn new(domain: &dyn fmt::Debug) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("address vector {number} of {domain:?}").into())
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
