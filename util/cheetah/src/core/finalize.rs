//! The end of a context, which is one of all: what was begun is finished and confirmed, everybody
//! meets in a barrier, says goodbye, and closes.

use super::Core;
use crate::engine::Engine;
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
    /// The end is reached.
    Ended,
}

impl Stage {
    /// The next stage, if it can begin.
    ///
    /// # Errors
    /// Why the last barrier cannot be entered.
    fn next(self, engine: &mut Engine) -> Result<Option<Self>> {
        Ok(match self {
            Self::Running if engine.is_idle() => {
                engine.flush();
                Some(Self::Flushing)
            }
            Self::Flushing if engine.is_idle() => {
                // Handlers may have sent more meanwhile, which is to be confirmed first.
                let is_confirmed = engine.flush() == 0;
                if !is_confirmed || !engine.barrier_is_over() {
                    return Ok(None);
                }
                engine.enter_barrier()?;
                Some(Self::Meeting)
            }
            Self::Meeting if engine.barrier_is_over() => {
                engine.say_goodbye();
                Some(Self::Leaving)
            }
            Self::Leaving if engine.is_idle() && !engine.has_arrivals() => Some(Self::Ended),
            _ => None,
        })
    }
}

impl Core {
    /// Takes a step towards the end, or all of them if there is nobody else; says whether it is
    /// reached. Messages are to be pulled between calls.
    ///
    /// # Errors
    /// Why there is no common end. This context is closed then, too.
    pub fn finalize_step(&self) -> Result<bool> {
        let mut state = self.home.enter();
        let state = &mut *state;
        let Some(engine) = &mut state.engine else {
            return Err(Error::Finalized("finalize"));
        };
        loop {
            engine.progress();
            if let Some(why) = engine.hopeless(None).cloned() {
                engine.say_goodbye();
                state.engine = None;
                return Err(why);
            }
            match state.stage.next(engine)? {
                Some(Stage::Ended) => {
                    state.engine = None;
                    return Ok(true);
                }
                Some(next) => state.stage = next,
                None => return Ok(false),
            }
            // Others may still be on their way to hear what was said.
            if engine.has_arrivals() || engine.size() > 1 {
                return Ok(false);
            }
        }
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
