//! The engine executes plans: it posts the messages of a round, and starts the next round when all
//! of them are complete.

mod fast_path;
mod join;
mod notification;
mod rounds;
mod small_message;
mod state;
mod telemetry;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, FiAddr, OpFlags, Result};

use super::completions::LayerCompletions;
use crate::Ep;
use crate::cq::{Progress, Sink};
use crate::fork_guard::ForkGuarded;
use crate::wait::ArmOutcome;

pub(super) use rounds::Post;
pub(super) use state::State;
pub(super) use telemetry::CollTelemetry;

use state::IDLE_LIMIT;

/// The collective layer of one endpoint, which queues and counters drive.
pub(super) struct Engine {
    pub(super) state: ForkGuarded<State>,
    completions: Arc<LayerCompletions>,
    /// Whether there is work without a completion.
    is_busy: AtomicBool,
    /// The endpoint on whose queues collectives complete.
    pub(super) ep: Ep,
}

impl Engine {
    pub(super) fn new(
        state: ForkGuarded<State>,
        completions: Arc<LayerCompletions>,
        ep: Ep,
    ) -> Self {
        Self {
            state,
            completions,
            is_busy: AtomicBool::new(false),
            ep,
        }
    }

    /// Runs `run` under the lock, handles the resulting completions, and reports finished
    /// collectives.
    pub(super) fn with_state<R>(
        &self,
        sink: &mut Sink<'_>,
        run: impl FnOnce(&mut State) -> Result<R>,
    ) -> Result<R> {
        let mut state = self.state.lock()?;
        let result = run(&mut state);
        state.drain_completions(&self.completions);
        self.report(&mut state, sink);
        self.is_busy.store(state.is_busy(), Ordering::Relaxed);
        result
    }

    #[inline]
    fn report(&self, state: &mut State, sink: &mut Sink<'_>) {
        while let Some((context, flags)) = state.fast_finished.pop() {
            self.report_success(context, flags, sink);
        }
        if !state.finished.is_empty() {
            self.report_finished(state, sink);
        }
    }

    #[inline]
    fn report_success(&self, context: Context, flags: OpFlags, sink: &mut Sink<'_>) {
        if self.ep.reports(flags) {
            sink.push(&self.ep.tx_cq, entry(context), FiAddr::UNSPEC);
        }
    }

    fn report_finished(&self, state: &mut State, sink: &mut Sink<'_>) {
        for finished in state.finished.drain(..) {
            match finished.outcome {
                Ok(()) => self.report_success(finished.context, finished.flags, sink),
                Err((errno, detail)) => {
                    let error = ErrEntry::new(entry(finished.context), errno, detail);
                    self.ep.tx_cq.push_err(error);
                }
            }
        }
    }
}

#[inline]
fn entry(context: Context) -> Entry {
    Entry {
        context,
        flags: CompletionFlags::COLLECTIVE,
        ..Entry::default()
    }
}

impl Progress for Engine {
    #[inline]
    fn progress(&self, _budget: usize, sink: &mut Sink<'_>) -> usize {
        if self.completions.is_empty() && !self.is_busy.load(Ordering::Relaxed) {
            return 0;
        }
        let ran = self.with_state(sink, |state| {
            state.poll(&self.completions);
            Ok(())
        });
        usize::from(ran.is_ok())
    }

    fn arm(&self, _epoch: &mut u64) -> ArmOutcome {
        if !self.completions.is_empty() {
            self.woken();
            return ArmOutcome::Progressed;
        }
        let received = self.with_state(&mut Sink::none(), |state| Ok(state.poll_channels_once()));
        match received {
            Ok(0) => {}
            Ok(_) => return ArmOutcome::Progressed,
            Err(_) => return ArmOutcome::UntilWoken,
        }
        let Ok(mut state) = self.state.lock() else {
            return ArmOutcome::UntilWoken;
        };
        if state.needs_retry {
            return ArmOutcome::AtMost(Duration::from_millis(1));
        }
        if state.running > 0 && state.idle < IDLE_LIMIT {
            state.idle = IDLE_LIMIT;
            state.check_all_liveness();
            return ArmOutcome::Progressed;
        }
        match state.broken {
            0 => ArmOutcome::UntilWoken,
            _ => ArmOutcome::AtMost(Duration::from_millis(10)),
        }
    }

    fn woken(&self) {
        self.progress(0, &mut Sink::none());
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
