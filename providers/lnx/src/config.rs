//! The provider's run-time parameters, `FI_LNX_*`.

use std::time::Duration;

use selvedge::Error;
use selvedge::param::{Params, Spec};
use selvedge_kit::wait::SPIN;

/// Every parameter, with its default and its effect.
pub(crate) static PARAMS: &[Spec] = &[
    Spec::text(
        "FI_LNX_HOST",
        "",
        "name of the host: endpoints with the same value use the near link",
    ),
    Spec::size(
        "FI_LNX_UNEXPECTED_SIZE",
        256 << 20,
        "bytes of unexpected messages that an endpoint stores before senders have to wait",
    ),
    Spec::time(
        "FI_LNX_SPIN_TIME",
        SPIN,
        "how long a waiting thread spins before it parks, at most",
    ),
];

/// The values of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The name of the host; empty for a name from system properties.
    pub(crate) host: String,
    pub(crate) unexpected_size: usize,
    pub(crate) spin_time: Duration,
}

impl Config {
    /// Reads the environment.
    ///
    /// # Errors
    /// [`selvedge::Errno::Inval`] for the first invalid value, which the error names.
    pub(crate) fn read(params: &Params) -> Result<Self, Error> {
        let params = params.with(PARAMS);
        Ok(Self {
            host: params.text("FI_LNX_HOST")?,
            unexpected_size: params.size("FI_LNX_UNEXPECTED_SIZE")?,
            spin_time: params.time("FI_LNX_SPIN_TIME")?,
        })
    }
}
