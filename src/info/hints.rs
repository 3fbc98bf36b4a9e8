//! What the application asks for.

use super::Info;

/// What the application asks of [`crate::Registry::getinfo`]: an [`Info`] whose unset fields mean
/// "any".
#[derive(Clone, Debug, Default)]
pub struct Hints {
    info: Info,
}

impl Hints {
    /// Asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is asked for.
    pub fn info(&self) -> &Info {
        &self.info
    }
}
