//! The provider's run-time parameters, `FI_LNX_*`.

use std::time::Duration;

use selvedge::Error;
use selvedge::param::{Params, Spec};
use selvedge_kit::wait::SPIN;

/// Every parameter, with its default and what it does.
pub(crate) static PARAMS: &[Spec] = &[
    Spec::text(
        "FI_LNX_HOST",
        "",
        "what tells hosts apart: endpoints that have the same here use the near link",
    ),
    Spec::size(
        "FI_LNX_UNEXPECTED_SIZE",
        256 << 20,
        "bytes of unexpected messages that an endpoint keeps before senders have to wait",
    ),
    Spec::time(
        "FI_LNX_SPIN_TIME",
        SPIN,
        "how long a thread that waits looks before it sleeps, at most",
    ),
];

/// The parameters, read.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Nothing for what the system says of itself.
    pub(crate) host: String,
    pub(crate) unexpected_size: usize,
    pub(crate) spin_time: Duration,
}

impl Config {
    /// Reads the environment.
    ///
    /// # Errors
    /// The first bad value, by name.
    pub(crate) fn read(params: &Params) -> Result<Self, Error> {
        let params = params.with(PARAMS);
        Ok(Self {
            host: params.text("FI_LNX_HOST")?,
            unexpected_size: params.size("FI_LNX_UNEXPECTED_SIZE")?,
            spin_time: params.time("FI_LNX_SPIN_TIME")?,
        })
    }
}
