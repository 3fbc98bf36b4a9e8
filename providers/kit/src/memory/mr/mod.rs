//! Registered memory by key.
//!
//! Code that accesses a region's memory holds [`Regions`] meanwhile. Deregistration waits until no
//! code holds it. Most providers access regions by requests to this process. A provider whose peers
//! access regions themselves publishes the entries of the table to them ([`Publication`]).

mod counts;
mod keys;
mod table;

use selvedge::Errno;

pub use counts::{AccessEvents, Bound, Counts, ObjectSharing, RegionCounters};
pub use keys::{Keys, MR_IOV_LIMIT, Regions};
pub use table::{Entry, Publication, entry_hint};

/// The reason why an access is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// No region has the key.
    Key,
    /// The region does not grant the rights.
    Rights,
    /// Some of the bytes are outside of the region.
    Bounds,
    /// The region covers all addresses, but the addresses of this access are not mapped with the
    /// necessary rights.
    Unmapped,
}

impl Denied {
    /// Returns the error number for the completion.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Key => Errno::KeyRejected,
            Self::Rights => Errno::Acces,
            Self::Bounds | Self::Unmapped => Errno::Fault,
        }
    }

    /// Returns the reason as a text that follows key and address in an error text.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Key => "no region has this key",
            Self::Rights => "the region does not grant this access",
            Self::Bounds => "the bytes are not all inside the region",
            Self::Unmapped => "no memory is mapped at this address",
        }
    }
}
