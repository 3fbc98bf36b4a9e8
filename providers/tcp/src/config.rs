//! The provider's run-time parameters, `FI_TCP_*`. Parameters that libfabric also has keep its
//! names.

use std::time::Duration;

use selvedge::param::{Params, Spec};
use selvedge::{Error, Info};
use selvedge_kit::auth::AuthKey;
use selvedge_kit::rate_limit;
use selvedge_kit::wait::{PollPolicy, SPIN};

use crate::socket::SocketOptions;
use crate::socket::tls::{Identity, identity};

/// The log target of messages about connections.
pub(crate) const CONTROL: &str = "selvedge::tcp::ep_ctrl";

/// The maximum number of outstanding operations, and of receives that `Info` reports.
pub(crate) const LONGEST_QUEUE: usize = 1 << 20;

/// The largest inject size that a program may request. Every endpoint accepts atomics of this size
/// from peers.
pub(crate) const LARGEST_INJECT: usize = 1 << 20;

/// The parameters, with defaults and descriptions.
pub(crate) static PARAMS: &[Spec] = &[
    Spec::text(
        "FI_TCP_IFACE",
        "",
        "name of the only network interface to use; empty for all interfaces",
    ),
    Spec::size(
        "FI_TCP_PORT_LOW_RANGE",
        0,
        "lowest port to listen at when none is requested; 0 for the system's choice",
    )
    .within(0, 65535),
    Spec::size(
        "FI_TCP_PORT_HIGH_RANGE",
        0,
        "highest port to listen at when none is requested",
    )
    .within(0, 65535),
    Spec::size(
        "FI_TCP_TX_SIZE",
        1024,
        "operations that may be outstanding to a peer",
    )
    .within(1, LONGEST_QUEUE),
    Spec::size(
        "FI_TCP_RX_SIZE",
        1024,
        "receives that may be posted, as reported; not a limit",
    )
    .within(1, LONGEST_QUEUE),
    Spec::size(
        "FI_TCP_MAX_INJECT",
        4096,
        "largest injected message, and largest atomic, in bytes",
    )
    .within(64, LARGEST_INJECT),
    Spec::size(
        "FI_TCP_MAX_SAVED_SIZE",
        usize::MAX,
        "larger tagged messages use rendezvous: their bytes are sent after a receive has matched",
    ),
    Spec::size(
        "FI_TCP_UNEXPECTED_SIZE",
        256 << 20,
        "bytes of unexpected messages that an endpoint keeps before senders have to wait",
    ),
    Spec::flag(
        "FI_TCP_NODELAY",
        true,
        "send small messages at once instead of waiting for more",
    ),
    Spec::time(
        "FI_TCP_CONNECT_TIMEOUT",
        Duration::from_secs(5),
        "how long the network may take to connect, and an accepted connection to complete its handshake",
    ),
    Spec::time(
        "FI_TCP_ANSWER_TIMEOUT",
        Duration::ZERO,
        "how long a peer may take to respond after its host has accepted the connection; 0s for no limit",
    ),
    Spec::time(
        "FI_TCP_PEER_TIMEOUT",
        Duration::from_millis(800),
        "how long a send waits for a peer whose host refuses connections",
    ),
    Spec::size(
        "FI_TCP_PENDING",
        64,
        "unauthenticated connections that an endpoint keeps",
    )
    .within(1, 4096),
    Spec::size(
        "FI_TCP_REQUESTS",
        1024,
        "connection requests that a passive endpoint keeps until they are accepted or rejected",
    )
    .within(1, 1 << 20),
    Spec::time(
        "FI_TCP_KEEPALIVE_IDLE",
        Duration::from_secs(10),
        "idle time after which keepalive probes start; 0s for no probes",
    ),
    Spec::time(
        "FI_TCP_KEEPALIVE_INTERVAL",
        Duration::from_secs(5),
        "time between two keepalive probes",
    ),
    Spec::size(
        "FI_TCP_KEEPALIVE_COUNT",
        4,
        "unanswered keepalive probes after which a connection is lost",
    )
    .within(1, 127),
    Spec::time(
        "FI_TCP_USER_TIMEOUT",
        Duration::from_secs(30),
        "how long bytes may stay unacknowledged before a connection is lost; 0s for the system's choice",
    ),
    Spec::time(
        "FI_TCP_CLOSE_TIMEOUT",
        Duration::from_secs(1),
        "how long closing an endpoint waits for queued bytes to be sent",
    ),
    Spec::size(
        "FI_TCP_LOG_RATE",
        rate_limit::DEFAULT_RATE,
        "warnings per second that peers can cause, for the whole process",
    ),
    Spec::time(
        "FI_TCP_SPIN_TIME",
        SPIN,
        "longest time that a waiting thread polls before it parks",
    ),
    Spec::flag(
        "FI_TCP_YIELD",
        true,
        "a program that polls in vain yields the processor to threads that want it",
    ),
    Spec::choice(
        "FI_TCP_TLS",
        "off",
        &["off", "require"],
        "require TLS 1.3 with certificates on both sides",
    ),
    Spec::text(
        "FI_TCP_TLS_CERT",
        "",
        "file (PEM) of the certificate and its intermediate certificates",
    ),
    Spec::text(
        "FI_TCP_TLS_KEY",
        "",
        "file (PEM) of the certificate's private key",
    ),
    Spec::text(
        "FI_TCP_TLS_CA",
        "",
        "file (PEM) of the authorities that peers' certificates are checked against",
    ),
    Spec::text(
        "FI_TCP_TLS_NAME",
        "",
        "name that certificates of peers must have; empty for the address that is connected to",
    ),
];

/// The values of the parameters, and the settings of one endpoint that are passed along with them.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) iface: Option<String>,
    /// The port range for endpoints without a requested port.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) inject_size: usize,
    pub(crate) eager_size: usize,
    pub(crate) unexpected_size: usize,
    pub(crate) connect_timeout: Duration,
    /// Zero means no limit.
    pub(crate) answer_timeout: Duration,
    pub(crate) peer_timeout: Duration,
    pub(crate) max_unauthenticated: usize,
    pub(crate) max_requests: usize,
    pub(crate) close_timeout: Duration,
    pub(crate) poll_policy: PollPolicy,
    pub(crate) socket_options: SocketOptions,
    /// The TLS identity; `None` without TLS.
    pub(crate) tls: Option<Identity>,
    /// The authorization key of the endpoint; not a parameter.
    pub(crate) key: AuthKey,
    /// Whether operations to one peer complete in the order of their posts; not a parameter.
    pub(crate) is_strict: bool,
}

/// The upper limit of timeouts, 100 years: `Instant` cannot represent every time that a parameter
/// can hold.
const LONGEST_WAIT: Duration = Duration::from_hours(100 * 365 * 24);

impl Config {
    /// Returns the configuration with the attributes of one endpoint: key, sizes and completion
    /// order.
    ///
    /// # Errors
    /// [`selvedge::Errno::Inval`] for a key that is too long.
    pub(crate) fn for_endpoint(self, info: &Info) -> Result<Self, Error> {
        let key = AuthKey::of(info)?;
        let tx_size = self.tx_size.max(info.tx_attr.size).min(LONGEST_QUEUE);
        let inject_size = self.inject_size.max(info.tx_attr.inject_size);
        Ok(Self {
            key,
            tx_size,
            inject_size: inject_size.min(LARGEST_INJECT),
            is_strict: info.tx_attr.comp_order != 0,
            ..self
        })
    }

    /// Returns the time of the next check of a wait for a peer's first response, counted from the
    /// start of the wait; `waited` is the time so far. The first check is at the connect timeout,
    /// the intervals double, and the last check is at the answer timeout.
    pub(crate) fn next_response_check(&self, waited: Duration) -> Duration {
        const SHORTEST: Duration = Duration::from_millis(10);
        let next = (2 * waited).max(self.connect_timeout).max(SHORTEST);
        match self.answer_timeout {
            Duration::ZERO => next,
            limit => next.min(limit),
        }
    }

    /// Whether peers must authenticate, by key or certificate.
    pub(crate) fn authenticates_peers(&self) -> bool {
        !self.key.is_none() || self.tls.is_some()
    }

    /// Reads the parameters and the files that they name.
    ///
    /// # Errors
    /// The first bad value, by name.
    pub(crate) fn read(params: &Params) -> Result<Self, Error> {
        let params = params.with(PARAMS);
        rate_limit::set_rate(params.size("FI_TCP_LOG_RATE")?);
        let iface = params.text("FI_TCP_IFACE")?;
        Ok(Self {
            iface: (!iface.is_empty()).then_some(iface),
            ports: ports(&params)?,
            tx_size: params.size("FI_TCP_TX_SIZE")?,
            rx_size: params.size("FI_TCP_RX_SIZE")?,
            inject_size: params.size("FI_TCP_MAX_INJECT")?,
            eager_size: params.size("FI_TCP_MAX_SAVED_SIZE")?,
            unexpected_size: params.size("FI_TCP_UNEXPECTED_SIZE")?,
            connect_timeout: params.time("FI_TCP_CONNECT_TIMEOUT")?.min(LONGEST_WAIT),
            answer_timeout: params.time("FI_TCP_ANSWER_TIMEOUT")?.min(LONGEST_WAIT),
            peer_timeout: params.time("FI_TCP_PEER_TIMEOUT")?.min(LONGEST_WAIT),
            max_unauthenticated: params.size("FI_TCP_PENDING")?,
            max_requests: params.size("FI_TCP_REQUESTS")?,
            close_timeout: params.time("FI_TCP_CLOSE_TIMEOUT")?,
            poll_policy: PollPolicy::new(
                params.time("FI_TCP_SPIN_TIME")?,
                params.flag("FI_TCP_YIELD")?,
            ),
            socket_options: SocketOptions {
                no_delay: params.flag("FI_TCP_NODELAY")?,
                keepalive: keepalive(&params)?,
                user_timeout: millis(params.time("FI_TCP_USER_TIMEOUT")?),
            },
            tls: identity(&params)?,
            key: AuthKey::none(),
            is_strict: false,
        })
    }
}

/// Reads the port range. A range whose low bound exceeds its high bound counts as unset, as in
/// libfabric.
fn ports(params: &Params) -> Result<Option<(u16, u16)>, Error> {
    let port = |name| Ok::<_, Error>(u16::try_from(params.size(name)?).unwrap_or(u16::MAX));
    let (low, high) = (
        port("FI_TCP_PORT_LOW_RANGE")?,
        port("FI_TCP_PORT_HIGH_RANGE")?,
    );
    Ok((high != 0 && low <= high).then_some((low.max(1), high)))
}

fn keepalive(params: &Params) -> Result<Option<(u32, u32, u32)>, Error> {
    let seconds = |time: Duration| u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX);
    let idle = params.time("FI_TCP_KEEPALIVE_IDLE")?;
    let interval = params.time("FI_TCP_KEEPALIVE_INTERVAL")?;
    let count = params.size("FI_TCP_KEEPALIVE_COUNT")? as u32;
    // The kernel's maximum, `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL`.
    let max = 32767;
    let times = (seconds(idle).min(max), seconds(interval).min(max), count);
    Ok((!idle.is_zero()).then_some(times))
}

fn millis(time: Duration) -> u32 {
    i32::try_from(time.as_millis()).map_or(i32::MAX as u32, |ms| ms as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fi_tcp_yield_forbids_yields() -> Result<(), Error> {
        for (value, yields) in [("0", false), ("1", true)] {
            let config = Config::read(&[("FI_TCP_YIELD", value)].into_iter().collect())?;
            assert_eq!(config.poll_policy, PollPolicy::new(SPIN, yields));
        }
        Ok(())
    }

    #[test]
    fn a_port_range_needs_both_bounds_in_order() -> Result<(), Error> {
        let table = [
            ("0", "0", None),
            ("1000", "1010", Some((1000, 1010))),
            ("1010", "1000", None),
            ("1000", "0", None),
            ("0", "1000", Some((1, 1000))),
        ];
        for (low, high, ports) in table {
            let params = [
                ("FI_TCP_PORT_LOW_RANGE", low),
                ("FI_TCP_PORT_HIGH_RANGE", high),
            ];
            let config = Config::read(&params.into_iter().collect())?;
            assert_eq!(config.ports, ports, "{low}..{high}");
        }
        Ok(())
    }

    #[test]
    fn times_are_clamped_to_the_kernels_limits() -> Result<(), Error> {
        let params = [
            ("FI_TCP_KEEPALIVE_IDLE", "100000000s"),
            ("FI_TCP_USER_TIMEOUT", "100000000s"),
        ];
        let config = Config::read(&params.into_iter().collect())?;
        assert_eq!(config.socket_options.keepalive, Some((32767, 5, 4)));
        assert_eq!(config.socket_options.user_timeout, i32::MAX as u32);
        let off = [("FI_TCP_KEEPALIVE_IDLE", "0s")];
        let config = Config::read(&off.into_iter().collect())?;
        assert_eq!(config.socket_options.keepalive, None);
        Ok(())
    }
}
