//! Errors of set-up paths, which a person reads.

use std::error::Error as StdError;

use crate::Errno;

/// What went wrong while something was opened, resolved or configured.
///
/// The text names the object and the value; [`Error::errno`] is what the C face returns.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {errno}")]
pub struct Error {
    errno: Errno,
    what: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Makes an error from its number and a sentence that names the object and the value.
    pub fn new(errno: Errno, what: impl Into<String>) -> Self {
        Self {
            errno,
            what: what.into(),
            source: None,
        }
    }

    /// Adds the error that caused this one.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The error number.
    pub const fn errno(&self) -> Errno {
        self.errno
    }

    /// The sentence without the number's text.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        error.errno
    }
}
