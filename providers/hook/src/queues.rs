//! Hooks around completion queues.

use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionQueue, Errno, FiAddr, Result};
use selvedge_kit::layer::{CqLayer, Layered, ObjectLayer};

use crate::call::Args;
use crate::ledger::Ledger;
use crate::provider::{At, HookLayers};

pub(crate) struct HookedQueue {
    at: At,
    /// What is open, if anybody wants to know.
    ledger: Option<Arc<Ledger>>,
}

impl HookedQueue {
    pub(crate) fn new(at: At) -> Self {
        let ledger = at.wanted().is_any().then(Arc::default);
        Self { at, ledger }
    }

    /// What is open at a queue.
    pub(crate) fn ledger(queue: &dyn CompletionQueue) -> Option<Arc<Ledger>> {
        let own = Layered::<_, Self>::downcast(queue)?;
        own.layer().ledger.clone()
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

impl ObjectLayer for HookedQueue {
    type Layers = HookLayers;

    fn close(&self) {
        self.at.close();
    }
}

impl CqLayer for HookedQueue {
    fn read(&self, below: &dyn CompletionQueue, out: &mut [Entry]) -> Result<usize> {
        self.read_by("cq_read", out, |out| below.read(out))
    }

    fn read_from(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: &mut [FiAddr],
    ) -> Result<usize> {
        self.read_by("cq_readfrom", out, |out| below.read_from(out, src))
    }

    fn read_ready(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: &mut [FiAddr],
    ) -> Result<usize> {
        self.read_by("cq_readready", out, |out| below.read_ready(out, src))
    }

    fn read_err(&self, below: &dyn CompletionQueue) -> Result<ErrEntry> {
        let gave = |error: &ErrEntry| {
            let (errno, context) = (error.errno.as_raw(), error.entry.context.0);
            Some(format!("\"err\":{errno},\"context\":{context}"))
        };
        let run = || below.read_err();
        let error = self
            .at
            .gives("cq_readerr", &|_| {}, gave, Err(Errno::Again), run)?;
        if let Some(ledger) = &self.ledger {
            ledger.failed(&error);
        }
        Ok(error)
    }

    fn wait(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        timeout: Option<Duration>,
    ) -> Result<usize> {
        self.read_by("cq_sread", out, |out| below.wait(out, timeout))
    }

    fn signal(&self, below: &dyn CompletionQueue) -> Result {
        self.at.done("cq_signal", &|_| {}, || below.signal())
    }

    fn try_wait(&self, below: &dyn CompletionQueue) -> Result {
        self.at.done("trywait", &|_| {}, || below.try_wait())
    }
}
