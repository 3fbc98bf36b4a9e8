//! The provider's run-time parameters, `FI_LNX_*`.

use selvedge::Error;
use selvedge::param::{Params, Spec};
use selvedge_kit::wait::{PollPolicy, SPIN};

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
        "longest time that a waiting thread polls before it parks",
    ),
    Spec::flag(
        "FI_LNX_YIELD",
        true,
        "a program that polls in vain yields the processor to threads that want it",
    ),
];

/// The values of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The name of the host; empty for a name from system properties.
    pub(crate) host: String,
    pub(crate) unexpected_size: usize,
    pub(crate) poll_policy: PollPolicy,
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
            poll_policy: PollPolicy::new(
                params.time("FI_LNX_SPIN_TIME")?,
                params.flag("FI_LNX_YIELD")?,
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fi_lnx_yield_forbids_yields() -> Result<(), Error> {
        for (value, yields) in [("0", false), ("1", true)] {
            let config = Config::read(&[("FI_LNX_YIELD", value)].into_iter().collect())?;
            assert_eq!(config.poll_policy, PollPolicy::new(SPIN, yields));
        }
        Ok(())
    }
}
