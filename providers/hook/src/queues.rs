//! Completion queues with hooks.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionQueue, Errno, FiAddr, Result};

use crate::call::Args;
use crate::ledger::Ledger;
use crate::provider::{At, unwrapped};

pub(crate) struct HookedQueue {
    inner: Arc<dyn CompletionQueue>,
    at: At,
    /// What is open, if anybody wants to know.
    ledger: Option<Arc<Ledger>>,
}

impl HookedQueue {
    pub(crate) fn new(inner: Arc<dyn CompletionQueue>, at: At) -> Self {
        let ledger = at.wanted().is_any().then(Arc::default);
        Self { inner, at, ledger }
    }

    /// What is open at a queue.
    pub(crate) fn ledger(queue: &Arc<dyn CompletionQueue>) -> Option<Arc<Ledger>> {
        let own = (&**queue as &dyn Any).downcast_ref::<Self>()?;
        own.ledger.clone()
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
        out: &mut [Entry],
        run: impl FnOnce(&mut [Entry]) -> Result<usize>,
    ) -> Result<usize> {
        let room = out.len();
        let args = |args: &mut Args| {
            args.num("room", room as u64);
        };
        let gave = |&count: &usize| Some(format!("\"count\":{count}"));
        let count = self.at.gives(name, &args, gave, Ok(0), || run(out))?;
        if let Some(ledger) = &self.ledger {
            ledger.completed(&out[..count.min(room)]);
        }
        Ok(count)
    }
}

impl CompletionQueue for HookedQueue {
    fn read(&self, out: &mut [Entry]) -> Result<usize> {
        self.read_by("cq_read", out, |out| self.inner.read(out))
    }

    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        self.read_by("cq_readfrom", out, |out| self.inner.read_from(out, src))
    }

    fn read_ready(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        self.read_by("cq_readready", out, |out| self.inner.read_ready(out, src))
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
        let error = self
            .at
            .gives("cq_readerr", &|_| {}, gave, Err(Errno::Again), run)?;
        if let Some(ledger) = &self.ledger {
            ledger.failed(&error);
        }
        Ok(error)
    }

    fn wait(&self, out: &mut [Entry], timeout: Option<Duration>) -> Result<usize> {
        self.read_by("cq_sread", out, |out| self.inner.wait(out, timeout))
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
