//! The end of a context, which is one of all: what was begun is finished and confirmed, everybody
//! meets in a barrier, says goodbye, and closes.

use super::Core;
use crate::{Error, Result};

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Running,
    /// Own operations come to their end, and what was sent is confirmed.
    Flushing,
    /// The last barrier.
    Meeting,
    /// Goodbyes are on their way.
    Leaving,
}

impl Core {
    /// Takes a step towards the end; says whether it is reached. Messages are to be pulled between
    /// steps, also after the last one but one.
    ///
    /// # Errors
    /// Why there is no common end. This context is closed then, too.
    pub fn finalize_step(&self) -> Result<bool> {
        let mut state = self.home.enter();
        let state = &mut *state;
        let Some(engine) = &mut state.engine else {
            return Err(Error::Finalized("finalize"));
        };
        engine.progress();
        if let Some(why) = engine.hopeless(None).cloned() {
            engine.say_goodbye();
            state.engine = None;
            return Err(why);
        }
        match state.stage {
            Stage::Running if engine.is_idle() => {
                engine.flush();
                state.stage = Stage::Flushing;
            }
            Stage::Flushing if engine.is_idle() => match engine.flush() {
                // Handlers have sent more meanwhile, unless there was nothing to confirm.
                0 if engine.barrier_is_over() => {
                    engine.enter_barrier()?;
                    state.stage = Stage::Meeting;
                }
                _ => {}
            },
            Stage::Meeting if engine.barrier_is_over() => {
                engine.say_goodbye();
                state.stage = Stage::Leaving;
            }
            Stage::Leaving if engine.is_idle() && !engine.has_arrivals() => {
                state.engine = None;
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Ends without a common end, as after an error: nothing is waited for.
    pub fn abandon_all(&self) {
        self.home.enter().engine = None;
    }

    /// Whether this context has come to its end.
    pub fn is_finalized(&self) -> bool {
        self.home.enter().engine.is_none()
    }

    /// Waits for contexts that were forked; nothing to do for all but the one that did.
    ///
    /// # Errors
    /// Which of them have failed, and how.
    pub fn wait_for_children(&self) -> Result {
        self.family.as_ref().map_or(Ok(()), |family| family.wait())
    }
}
