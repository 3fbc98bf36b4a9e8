//! The faces of the object model that tests are run over.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The traits themselves.
    Raw,
    /// `selvedge::owned`, polled.
    Owned,
    /// `selvedge::owned`, awaited.
    Async,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Owned => "owned",
            Self::Async => "async",
        })
    }
}
