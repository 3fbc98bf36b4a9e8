//! Hooks around completion queues.

use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionQueue, Errno, FiAddr, Result};
use selvedge_kit::layer::{CqLayer, Layered, ObjectLayer};

use super::point::{HookLayers, HookPoint};
use crate::hooks::Args;
use crate::recorder::OpenOps;

pub(crate) struct HookedQueue {
    point: HookPoint,
    /// The open operations, if a hook needs them.
    open_ops: Option<Arc<OpenOps>>,
}

impl HookedQueue {
    pub(crate) fn new(point: HookPoint) -> Self {
        let open_ops = point.recorder_config().is_any().then(Arc::default);
        Self { point, open_ops }
    }

    /// The open operations of a queue.
    pub(crate) fn open_ops(queue: &dyn CompletionQueue) -> Option<Arc<OpenOps>> {
        let layered = Layered::<_, Self>::downcast(queue)?;
        layered.layer().open_ops.clone()
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
        let returned = |&count: &usize| Some(format!("\"count\":{count}"));
        let count = self
            .point
            .call_returning(name, &args, returned, Ok(0), || run(out))?;
        if let Some(open_ops) = &self.open_ops {
            open_ops.complete_entries(&out[..count.min(room)]);
        }
        Ok(count)
    }
}

impl ObjectLayer for HookedQueue {
    type Layers = HookLayers;

    fn close(&self) {
        self.point.close();
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
        let returned = |error: &ErrEntry| {
            let (errno, context) = (error.errno.as_raw(), error.entry.context.0);
            Some(format!("\"err\":{errno},\"context\":{context}"))
        };
        let run = || below.read_err();
        let error =
            self.point
                .call_returning("cq_readerr", &|_| {}, returned, Err(Errno::Again), run)?;
        if let Some(open_ops) = &self.open_ops {
            open_ops.complete_failed(&error);
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
        self.point
            .call_unit("cq_signal", &|_| {}, || below.signal())
    }

    fn try_wait(&self, below: &dyn CompletionQueue) -> Result {
        self.point
            .call_unit("trywait", &|_| {}, || below.try_wait())
    }
}
