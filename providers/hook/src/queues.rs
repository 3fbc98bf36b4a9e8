//! Completion queues with hooks.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionQueue, Errno, FiAddr, Result};

use crate::call::Args;
use crate::provider::{At, unwrapped};

pub(crate) struct HookedQueue {
    inner: Arc<dyn CompletionQueue>,
    at: At,
}

impl HookedQueue {
    pub(crate) fn new(inner: Arc<dyn CompletionQueue>, at: At) -> Self {
        Self { inner, at }
    }

    pub(crate) fn inner(queue: Arc<dyn CompletionQueue>) -> Arc<dyn CompletionQueue> {
        unwrapped(
            queue,
            |queue| queue as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }

    fn read_by(
        &self,
        name: &'static str,
        room: usize,
        run: impl FnOnce() -> Result<usize>,
    ) -> Result<usize> {
        let args = |args: &mut Args| {
            args.num("room", room as u64);
        };
        let gave = |&count: &usize| Some(format!("\"count\":{count}"));
        self.at.gives(name, &args, gave, Ok(0), run)
    }
}

impl CompletionQueue for HookedQueue {
    fn read(&self, out: &mut [Entry]) -> Result<usize> {
        self.read_by("cq_read", out.len(), || self.inner.read(out))
    }

    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        let room = out.len();
        self.read_by("cq_readfrom", room, || self.inner.read_from(out, src))
    }

    fn read_ready(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        let room = out.len();
        self.read_by("cq_readready", room, || self.inner.read_ready(out, src))
    }

    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    fn read_err(&self) -> Result<ErrEntry> {
        let gave = |error: &ErrEntry| {
            let (errno, context) = (error.errno.as_raw(), error.entry.context.0);
            Some(format!("\"err\":{errno},\"context\":{context}"))
        };
        let run = || self.inner.read_err();
        self.at
            .gives("cq_readerr", &|_| {}, gave, Err(Errno::Again), run)
    }

    fn wait(&self, out: &mut [Entry], timeout: Option<Duration>) -> Result<usize> {
        self.read_by("cq_sread", out.len(), || self.inner.wait(out, timeout))
    }

    fn signal(&self) -> Result {
        self.at.done("cq_signal", &|_| {}, || self.inner.signal())
    }

    fn try_wait(&self) -> Result {
        self.at.done("trywait", &|_| {}, || self.inner.try_wait())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}

impl Drop for HookedQueue {
    fn drop(&mut self) {
        self.at.close("cq_close");
    }
}

impl fmt::Debug for HookedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
