//! `State`: the engine of a context, and the stage of its finalization.

use super::idle::Backoff;
use crate::Result;
use crate::engine::Engine;

/// The state of a context.
pub(super) struct State {
    /// `None` after finalize.
    pub(super) engine: Option<Engine>,
    pub(super) stage: Stage,
    pub(super) backoff: Backoff,
    /// A call that was not a poll has found an event, and no poll has followed.
    pub(super) has_unpolled_events: bool,
}

impl State {
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine: Some(engine),
            stage: Stage::default(),
            backoff: Backoff::default(),
            has_unpolled_events: false,
        }
    }
}

/// Stage of the finalization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Running,
    /// Waits for local operations and for the confirmation of sent messages.
    Flushing,
    /// The last barrier.
    FinalBarrier,
    /// Close messages are being sent.
    Closing,
    /// Finalized.
    Ended,
}

impl Stage {
    /// The next stage, if it can begin.
    ///
    /// # Errors
    /// The last barrier cannot be entered.
    pub(super) fn next(self, engine: &mut Engine) -> Result<Option<Self>> {
        Ok(match self {
            Self::Running if engine.is_idle() => {
                engine.flush();
                Some(Self::Flushing)
            }
            Self::Flushing if engine.is_idle() => {
                // Handlers may have sent further messages, which must be confirmed first.
                let is_confirmed = engine.flush() == 0;
                if !is_confirmed || !engine.barrier_is_complete() {
                    return Ok(None);
                }
                engine.enter_barrier()?;
                Some(Self::FinalBarrier)
            }
            Self::FinalBarrier if engine.barrier_is_complete() => {
                engine.send_close();
                Some(Self::Closing)
            }
            Self::Closing if engine.is_idle() && !engine.has_messages() => Some(Self::Ended),
            _ => None,
        })
    }
}
