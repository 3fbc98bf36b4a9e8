//! The provider's run-time parameters, `FI_UDP_*`: libfabric's name where it has one.

use selvedge::Error;
use selvedge::param::{Params, Spec};
use selvedge_kit::wait::{PollPolicy, SPIN};

/// The maximum number of waiting sends, and of receives that `Info` reports.
pub(crate) const LONGEST_QUEUE: usize = 1 << 16;

/// The parameters, with defaults and descriptions.
pub(crate) static PARAMS: &[Spec] = &[
    Spec::text(
        "FI_UDP_IFACE",
        "",
        "name of the only network interface to use; empty for all interfaces",
    ),
    Spec::size(
        "FI_UDP_MAX_MSG_SIZE",
        MAX_MSG_SIZE,
        "largest message, in bytes; the system fragments a datagram that is larger than the \
         network's MTU, and the loss of one fragment loses the datagram",
    )
    .within(64, LARGEST),
    Spec::size(
        "FI_UDP_TX_SIZE",
        1024,
        "sends that may wait for the socket, in datagrams",
    )
    .within(1, LONGEST_QUEUE),
    Spec::size(
        "FI_UDP_RX_SIZE",
        1024,
        "receives that may be posted, as reported; not a limit",
    )
    .within(1, 1 << 20),
    Spec::size(
        "FI_UDP_BUFFER_SIZE",
        4 << 20,
        "size of the socket's receive buffer in bytes",
    )
    .within(4096, 1 << 30),
    Spec::time(
        "FI_UDP_SPIN_TIME",
        SPIN,
        "longest time that a waiting thread polls before it parks",
    ),
    Spec::flag(
        "FI_UDP_YIELD",
        true,
        "a program that polls in vain yields the processor to threads that want it",
    ),
];

/// The MTU of Ethernet without the headers of IPv4 and UDP.
const MAX_MSG_SIZE: usize = 1472;
/// The largest payload of a UDP datagram over IPv4.
const LARGEST: usize = 65507;

/// The values of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) iface: Option<String>,
    pub(crate) max_msg_size: usize,
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) buffer_size: usize,
    pub(crate) poll_policy: PollPolicy,
}

impl Config {
    /// Reads the parameters.
    ///
    /// # Errors
    /// [`selvedge::Errno::Inval`] for the first invalid value, which the error names.
    pub(crate) fn read(params: &Params) -> Result<Self, Error> {
        let params = params.with(PARAMS);
        let iface = params.text("FI_UDP_IFACE")?;
        Ok(Self {
            iface: (!iface.is_empty()).then_some(iface),
            max_msg_size: params.size("FI_UDP_MAX_MSG_SIZE")?,
            tx_size: params.size("FI_UDP_TX_SIZE")?,
            rx_size: params.size("FI_UDP_RX_SIZE")?,
            buffer_size: params.size("FI_UDP_BUFFER_SIZE")?,
            poll_policy: PollPolicy::new(
                params.time("FI_UDP_SPIN_TIME")?,
                params.flag("FI_UDP_YIELD")?,
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fi_udp_yield_forbids_yields() -> Result<(), Error> {
        for (value, yields) in [("0", false), ("1", true)] {
            let config = Config::read(&[("FI_UDP_YIELD", value)].into_iter().collect())?;
            assert_eq!(config.poll_policy, PollPolicy::new(SPIN, yields));
        }
        Ok(())
    }
}
