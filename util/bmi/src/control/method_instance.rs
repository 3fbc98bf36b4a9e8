//! A method instance: an active method, its queues, and the lock around every call to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use selvedge_kit::lock::{Guard, Lock};

use super::parking::Parking;
use super::queues::MethodQueues;
use crate::ids::MethodIndex;
use crate::memory::DeferredFrees;
use crate::method::{Limits, Method, TryWait};
use crate::{Code, Error, Memory};

/// An active method.
#[derive(Debug)]
pub(super) struct MethodInstance {
    pub(super) index: MethodIndex,
    pub(super) scheme: String,
    pub(super) limits: Limits,
    /// A duplicate of the method's descriptor, which becomes ready when the method has events.
    /// Threads park on the duplicate without the lock.
    wait_fd: Option<OwnedFd>,
    inner: Lock<Inner>,
}

#[derive(Debug)]
struct Inner {
    // The first field, so that it is dropped first: until then, the method may access the memory of
    // operations, which the queues retain.
    method: Box<dyn Method>,
    queues: MethodQueues,
    deferred_frees: Arc<DeferredFrees>,
}

impl MethodInstance {
    pub(super) fn new(
        index: MethodIndex,
        scheme: &str,
        method: Box<dyn Method>,
    ) -> Result<Self, Error> {
        let fd = method.wait_fd().map(|fd| fd.try_clone_to_owned());
        let wait_fd = fd.transpose().map_err(|error| {
            let code = Code::of_system(error.raw_os_error().unwrap_or_default());
            Error::new(
                code,
                format!("method {scheme}: cannot duplicate its descriptor"),
            )
        })?;
        Ok(Self {
            index,
            scheme: scheme.to_owned(),
            limits: method.limits(),
            wait_fd,
            inner: Lock::new(Inner {
                method,
                queues: MethodQueues::new(index),
                deferred_frees: Arc::default(),
            }),
        })
    }

    /// Locks the method. If an earlier call panicked under the lock, the method is used in the
    /// state that the call left.
    #[inline]
    pub(super) fn lock<'a>(&'a self, parking: &'a Parking) -> LockedMethod<'a> {
        LockedMethod {
            inner: self.inner.lock(),
            parking,
        }
    }

    /// Locks the method for a progress pass, after the calls that already wait for the lock.
    #[inline]
    pub(super) fn lock_for_progress<'a>(&'a self, parking: &'a Parking) -> LockedMethod<'a> {
        LockedMethod {
            inner: self.inner.lock_for_pass(),
            parking,
        }
    }

    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_fd.as_ref().map(AsFd::as_fd)
    }
}

/// A locked method. If the method reported events meanwhile, dropping this wakes parked threads.
#[derive(Debug)]
pub(super) struct LockedMethod<'a> {
    inner: Guard<'a, Inner>,
    parking: &'a Parking,
}

impl LockedMethod<'_> {
    #[inline]
    pub(super) fn queues(&mut self) -> &mut MethodQueues {
        &mut self.inner.queues
    }

    /// The method and its queues.
    #[inline]
    pub(super) fn split(&mut self) -> (&mut dyn Method, &mut MethodQueues) {
        let Inner { method, queues, .. } = &mut *self.inner;
        (&mut **method, queues)
    }

    #[inline]
    pub(super) fn progress(&mut self) {
        let (method, queues) = self.split();
        method.progress(queues);
    }

    pub(super) fn memalloc(&mut self, len: usize) -> Option<Memory> {
        self.inner.deferred_frees.drain();
        let allocation = self.inner.method.memalloc(len)?;
        Some(Memory::from_allocation(
            allocation,
            &self.inner.deferred_frees,
        ))
    }

    pub(super) fn try_wait(&mut self) -> TryWait {
        let (method, queues) = self.split();
        method.try_wait(queues)
    }
}

impl Drop for LockedMethod<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::take(&mut self.inner.queues.has_events) {
            self.parking.wake();
        }
    }
}
