//! A station: an active method, its desk, and the lock that every call to it is made under.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use selvedge_kit::lock::{Guard, Lock};

use super::desk::Desk;
use super::sleep::Sleepers;
use crate::ids::MethodIndex;
use crate::memory::Chute;
use crate::method::{Limits, Method, Rest};
use crate::{Code, Error, Memory};

/// An active method.
#[derive(Debug)]
pub(super) struct Station {
    pub(super) index: MethodIndex,
    pub(super) scheme: String,
    pub(super) limits: Limits,
    /// What becomes ready when there is news, apart from the method: it is slept on without the
    /// lock.
    wait_fd: Option<OwnedFd>,
    inner: Lock<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Dropped first: it touches the memory of operations no more when the desk lets that go.
    method: Box<dyn Method>,
    desk: Desk,
    chute: Arc<Chute>,
}

impl Station {
    pub(super) fn new(
        index: MethodIndex,
        scheme: &str,
        method: Box<dyn Method>,
    ) -> Result<Self, Error> {
        let fd = method.wait_fd().map(|fd| fd.try_clone_to_owned());
        let wait_fd = fd.transpose().map_err(|error| {
            let code = Code::of_system(error.raw_os_error().unwrap_or_default());
            Error::new(code, format!("method {scheme}: its descriptor"))
        })?;
        Ok(Self {
            index,
            scheme: scheme.to_owned(),
            limits: method.limits(),
            wait_fd,
            inner: Lock::new(Inner {
                method,
                desk: Desk::new(index),
                chute: Arc::default(),
            }),
        })
    }

    /// Has the method to oneself. A call that panicked leaves it as it was then.
    #[inline]
    pub(super) fn hold<'a>(&'a self, sleepers: &'a Sleepers) -> Held<'a> {
        Held {
            inner: self.inner.lock(),
            sleepers,
        }
    }

    /// Has the method to oneself for a progress pass, after the calls that wait for it.
    #[inline]
    pub(super) fn hold_for_pass<'a>(&'a self, sleepers: &'a Sleepers) -> Held<'a> {
        Held {
            inner: self.inner.lock_for_pass(),
            sleepers,
        }
    }

    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_fd.as_ref().map(AsFd::as_fd)
    }
}

/// A method that nobody else can call meanwhile. Dropping it wakes whoever waits for what has
/// happened.
#[derive(Debug)]
pub(super) struct Held<'a> {
    inner: Guard<'a, Inner>,
    sleepers: &'a Sleepers,
}

impl Held<'_> {
    #[inline]
    pub(super) fn desk(&mut self) -> &mut Desk {
        &mut self.inner.desk
    }

    /// The method and its desk.
    #[inline]
    pub(super) fn parts(&mut self) -> (&mut dyn Method, &mut Desk) {
        let Inner { method, desk, .. } = &mut *self.inner;
        (&mut **method, desk)
    }

    #[inline]
    pub(super) fn progress(&mut self) {
        let (method, desk) = self.parts();
        method.progress(desk);
    }

    pub(super) fn memalloc(&mut self, len: usize) -> Option<Memory> {
        self.inner.chute.empty();
        let allocation = self.inner.method.memalloc(len)?;
        Some(Memory::special(allocation, &self.inner.chute))
    }

    pub(super) fn rest(&mut self) -> Rest {
        let (method, desk) = self.parts();
        method.rest(desk)
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if std::mem::take(&mut self.inner.desk.has_news) {
            self.sleepers.wake();
        }
    }
}
