//! The two sides of a pair.

use std::fmt;

/// One of the two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// The process that measures.
    Active,
    /// The process that responds.
    Passive,
}

impl Side {
    /// Both sides, the active one first.
    pub const BOTH: [Self; 2] = [Self::Active, Self::Passive];

    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Passive => "passive",
        })
    }
}
