//! The counters of an endpoint, by kind of operation.

use std::sync::Arc;

use selvedge::{CompletionFlags, Counter, Counters, Error};

use crate::cntr::{self, Cntr};
use crate::domain::identity::DomainId;

/// The counters of an endpoint, downcast to the kit's type.
#[derive(Clone, Debug)]
pub(crate) struct Cntrs {
    pub(super) send: Option<Arc<Cntr>>,
    pub(super) recv: Option<Arc<Cntr>>,
    pub(super) read: Option<Arc<Cntr>>,
    pub(super) write: Option<Arc<Cntr>>,
    pub(super) remote_read: Option<Arc<Cntr>>,
    pub(super) remote_write: Option<Arc<Cntr>>,
}

impl Cntrs {
    /// # Errors
    /// [`Errno::Inval`] for a counter of another domain.
    pub(super) fn resolve(bound: &Counters, domain: &DomainId) -> Result<Self, Error> {
        let resolved = |cntr: &Option<Arc<dyn Counter>>, name| {
            let resolved = |cntr| cntr::resolve(domain, name, cntr);
            cntr.as_ref().map(resolved).transpose()
        };
        Ok(Self {
            send: resolved(&bound.send, "send counter of an endpoint")?,
            recv: resolved(&bound.recv, "recv counter of an endpoint")?,
            read: resolved(&bound.read, "read counter of an endpoint")?,
            write: resolved(&bound.write, "write counter of an endpoint")?,
            remote_read: resolved(&bound.remote_read, "remote_read counter of an endpoint")?,
            remote_write: resolved(&bound.remote_write, "remote_write counter of an endpoint")?,
        })
    }

    /// The counter of operations of this kind.
    #[inline]
    pub(crate) fn for_kind(&self, kind: CompletionFlags) -> Option<&Arc<Cntr>> {
        if kind.contains(CompletionFlags::SEND) {
            self.send.as_ref()
        } else if kind.contains(CompletionFlags::READ) {
            self.read.as_ref()
        } else if kind.contains(CompletionFlags::RECV) {
            self.recv.as_ref()
        } else {
            self.write.as_ref()
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Cntr>> {
        self.all().into_iter().flatten()
    }

    const fn all(&self) -> [&Option<Arc<Cntr>>; 6] {
        [
            &self.send,
            &self.recv,
            &self.read,
            &self.write,
            &self.remote_read,
            &self.remote_write,
        ]
    }

    /// Whether there is a kind of operations for which both `self` and `other` have a counter.
    pub(super) fn have_any_of(&self, other: &Self) -> bool {
        let mut pairs = self.all().into_iter().zip(other.all());
        pairs.any(|(resolved, other)| resolved.is_some() && other.is_some())
    }

    /// Adds the counters of `other`, which replace those of the same kind.
    pub(super) fn add(&mut self, other: &Self) {
        let resolved = [
            &mut self.send,
            &mut self.recv,
            &mut self.read,
            &mut self.write,
            &mut self.remote_read,
            &mut self.remote_write,
        ];
        for (resolved, other) in resolved.into_iter().zip(other.all()) {
            if other.is_some() {
                resolved.clone_from(other);
            }
        }
    }
}
