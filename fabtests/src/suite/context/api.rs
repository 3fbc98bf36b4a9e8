//! The APIs that tests run over.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The API of an endpoint under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Api {
    /// The object traits of `selvedge`.
    Raw,
    /// `selvedge::owned`, with polling.
    Owned,
    /// `selvedge::owned`, with futures.
    Async,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Owned => "owned",
            Self::Async => "async",
        })
    }
}
