//! The provider's run-time parameters, `FI_LNX_*`.

use std::time::Duration;

use selvedge::Error;
use selvedge::param::{Params, Spec};
use selvedge_kit::wait::{PollPolicy, SPIN};

/// The parameter that selects the providers of the links.
pub(crate) const PROV_LINKS: &str = "FI_LNX_PROV_LINKS";

/// Every parameter, with its default and its effect.
pub(crate) static PARAMS: &[Spec] = &[
    Spec::text(
        "FI_LNX_HOST",
        "",
        "name of the host: endpoints with the same value use the near link",
    ),
    Spec::text(
        PROV_LINKS,
        "",
        "providers of the links, NEAR+FAR, such as \"shm+verbs;ofi_rxm;ofi\"; a domain follows a \
         colon (default: shm+tcp)",
    ),
    Spec::size(
        "FI_LNX_UNEXPECTED_SIZE",
        256 << 20,
        "bytes of unexpected messages that an endpoint stores before senders have to wait",
    ),
    Spec::time(
        "FI_LNX_PEER_TIMEOUT",
        Duration::from_secs(10),
        "time without a connection after which a peer that was connected over another library has \
         failed",
    ),
    Spec::time(
        "FI_LNX_CONNECT_TIMEOUT",
        Duration::from_secs(300),
        "time without a connection after which a peer over another library is unreachable",
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

/// The times after which a peer whose link refuses frames counts as failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For a peer that was connected.
    pub(crate) lost: Duration,
    /// For a peer that was never connected.
    pub(crate) connect: Duration,
}

/// The values of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The name of the host; empty for a name from system properties.
    pub(crate) host: String,
    /// The providers of the links; empty for the default.
    pub(crate) prov_links: String,
    pub(crate) unexpected_size: usize,
    pub(crate) timeouts: Timeouts,
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
            prov_links: params.text(PROV_LINKS)?,
            unexpected_size: params.size("FI_LNX_UNEXPECTED_SIZE")?,
            timeouts: Timeouts {
                lost: params.time("FI_LNX_PEER_TIMEOUT")?,
                connect: params.time("FI_LNX_CONNECT_TIMEOUT")?,
            },
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
