//! Regions with hooks: registered memory, and memory that the domain has made.

#![expect(unsafe_code, reason = "memory around memory")]

use std::fmt;
use std::sync::Arc;

use selvedge::{Allocation, Counter, Desc, Error, MemoryRegion, MrAccess};

use crate::call::Args;
use crate::objects::HookedCounter;
use crate::provider::At;

/// A region, or an allocation, which is one.
pub(crate) struct HookedRegion<T: ?Sized + MemoryRegion> {
    inner: Arc<T>,
    at: At,
}

impl<T: ?Sized + MemoryRegion> HookedRegion<T> {
    pub(crate) fn new(inner: Arc<T>, at: At) -> Self {
        Self { inner, at }
    }
}

impl<T: ?Sized + MemoryRegion> MemoryRegion for HookedRegion<T> {
    fn key(&self) -> u64 {
        self.inner.key()
    }

    fn desc(&self) -> Desc {
        self.inner.desc()
    }

    fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> Result<(), Error> {
        let cntr = HookedCounter::inner(Arc::clone(cntr));
        let args = |args: &mut Args| {
            args.num("key", self.inner.key()).num("what", what.bits());
        };
        let run = || self.inner.bind_counter(&cntr, what);
        self.at.open("mr_bind", &args, run)
    }
}

// SAFETY: the memory is the inner allocation's, which lives as long as this.
unsafe impl Allocation for HookedRegion<dyn Allocation> {
    fn base(&self) -> *mut u8 {
        self.inner.base()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn remote_addr(&self) -> u64 {
        self.inner.remote_addr()
    }

    fn is_special(&self) -> bool {
        self.inner.is_special()
    }
}

impl<T: ?Sized + MemoryRegion> Drop for HookedRegion<T> {
    fn drop(&mut self) {
        self.at.close("mr_close");
    }
}

impl<T: ?Sized + MemoryRegion> fmt::Debug for HookedRegion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
