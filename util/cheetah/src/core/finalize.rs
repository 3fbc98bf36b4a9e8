//! Finalization, which is collective: pending operations complete and are confirmed, all contexts
//! enter a last barrier, exchange close messages, and close.

use super::Core;
use super::state::Stage;
use crate::{Error, Result};

impl Core {
    /// Takes the next step, or all steps if there is one context. Returns whether the context is
    /// finalized. The caller takes messages between calls.
    ///
    /// # Errors
    /// The failure that makes a collective finalize impossible. This context is closed.
    pub fn finalize_step(&self) -> Result<bool> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(engine) = &mut state.engine else {
            return Err(Error::Finalized("finalize"));
        };
        loop {
            engine.progress();
            if let Some(error) = engine.wait_error(None).cloned() {
                engine.send_close();
                state.engine = None;
                return Err(error);
            }
            match state.stage.next(engine)? {
                Some(Stage::Ended) => {
                    state.engine = None;
                    return Ok(true);
                }
                Some(next) => state.stage = next,
                None => return Ok(false),
            }
            // The other contexts must poll to receive the messages of this stage.
            if engine.has_messages() || engine.size() > 1 {
                return Ok(false);
            }
        }
    }

    /// Closes this context at once, without the other contexts, for use after an error.
    pub fn abort(&self) {
        self.state.lock().engine = None;
    }

    /// Returns whether this context is finalized.
    pub fn is_finalized(&self) -> bool {
        self.state.lock().engine.is_none()
    }

    /// Waits for forked children; returns at once in a process that has not forked.
    ///
    /// # Errors
    /// The children that have failed, with their exit status.
    pub fn wait_for_children(&self) -> Result {
        self.children
            .as_ref()
            .map_or(Ok(()), |children| children.wait())
    }
}
