//! The provider's run-time parameters, `FI_SHM_*`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use selvedge::param::{Params, Spec};
use selvedge::{Error, OpFlags};
use selvedge_kit::rate_limit;
use selvedge_kit::wait::{PollPolicy, SPIN};

use crate::provider::placement::Placement;
use crate::smr::Sizes;
use crate::transfers::MAX_OPS;
use crate::transfers::cmd::INLINE_MAX;

/// The upper limit of the queue sizes.
pub(crate) const LONGEST_QUEUE: usize = 1 << 20;

/// Every parameter, with its default and description.
pub(crate) static PARAMS: &[Spec] = &[
    Spec::size("FI_SHM_TX_SIZE", 1024, "sends that may be outstanding").within(1, LONGEST_QUEUE),
    Spec::size(
        "FI_SHM_RX_SIZE",
        1024,
        "receives that may be posted, as reported; not a limit",
    )
    .within(1, LONGEST_QUEUE),
    Spec::size(
        "FI_SHM_CMD_COUNT",
        256,
        "commands in the queue to each active peer",
    )
    .within(16, 65536),
    Spec::size(
        "FI_SHM_INLINE_SIZE",
        INLINE_MAX,
        "largest message inside a command, in bytes",
    )
    .within(0, INLINE_MAX),
    Spec::size(
        "FI_SHM_INJECT_SIZE",
        4096,
        "largest message copied through the inject pool",
    )
    .within(64, 1 << 20),
    Spec::size(
        "FI_SHM_POOL_SIZE",
        64 << 10,
        "inject pool for each active peer, in bytes",
    )
    .within(4096, 256 << 20),
    Spec::size(
        "FI_SHM_SEGMENT_SIZE",
        16 << 10,
        "segment of a bounced message, in bytes",
    )
    .within(4096, 4 << 20),
    Spec::size(
        "FI_SHM_SEGMENT_COUNT",
        16,
        "segments on their way to one peer",
    )
    .within(2, 128),
    Spec::choice(
        "FI_SHM_PROTOCOL",
        "auto",
        &["auto", "cma", "bounce"],
        "protocol of large messages: measured per peer, cross-memory attach, or bounce buffers",
    ),
    Spec::flag(
        "FI_SHM_DISABLE_CMA",
        false,
        "libfabric's name for FI_SHM_PROTOCOL=bounce",
    ),
    Spec::choice(
        "FI_SHM_WRITE_COMPLETE",
        "transmit",
        &["transmit", "delivery"],
        "completion level of writes without a level flag: transmit or delivery complete",
    ),
    Spec::size(
        "FI_SHM_UNEXPECTED_SIZE",
        256 << 20,
        "bytes of unexpected messages that an endpoint buffers before senders have to wait",
    ),
    Spec::size(
        "FI_SHM_LENT_MAX",
        64,
        "messages that are lent to one peer before a lending send has to wait",
    )
    .within(1, MAX_OPS - 16),
    Spec::time(
        "FI_SHM_PEER_TIMEOUT",
        Duration::from_millis(800),
        "how long a send waits for a peer that has not started",
    ),
    Spec::flag(
        "FI_SHM_EAGER_EXCHANGE",
        false,
        "connect to every address when it is inserted, not at the first message to it",
    ),
    Spec::text(
        "FI_SHM_DIR",
        "",
        "directory of the endpoints' sockets; without it they need one network namespace",
    ),
    Spec::flag(
        "FI_SHM_REMOTE_COMM",
        false,
        "offer FI_REMOTE_COMM, for programs that ask for it and run on this machine alone",
    ),
    Spec::size(
        "FI_SHM_HOT_PEERS",
        8,
        "peers whose queues every progress call polls; others set a doorbell bit",
    )
    .within(1, 1024),
    Spec::size(
        "FI_SHM_PENDING",
        64,
        "unauthenticated connections that an endpoint keeps",
    )
    .within(1, 4096),
    Spec::time(
        "FI_SHM_HELLO_TIMEOUT",
        Duration::from_secs(1),
        "timeout of a new connection's hello",
    ),
    Spec::size(
        "FI_SHM_LOG_RATE",
        rate_limit::DEFAULT_RATE,
        "warnings in a second that peers can cause, for the whole process",
    ),
    Spec::time(
        "FI_SHM_SPIN_TIME",
        SPIN,
        "longest time that a waiting thread polls before it parks",
    ),
    Spec::flag(
        "FI_SHM_YIELD",
        true,
        "a program that polls in vain yields the processor to threads that want it",
    ),
    Spec::choice(
        "FI_SHM_NUMA",
        "receiver",
        Placement::NAMES,
        "NUMA node of messages on their way: the receiver's, the sender's, or the kernel's choice",
    ),
];

/// The protocol for large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// The fastest protocol, measured per peer and size.
    Auto,
    /// Cross-memory attach, where the system allows it.
    Cma,
    /// Bounce buffers.
    Bounce,
}

/// The values of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) tx_size: usize,
    pub(crate) rx_size: usize,
    pub(crate) inline_size: usize,
    pub(crate) inject_size: usize,
    pub(crate) region: Sizes,
    pub(crate) segment_size: usize,
    pub(crate) segment_count: usize,
    pub(crate) protocol: Protocol,
    /// Flags that are added to every one-sided write.
    pub(crate) write_flags: OpFlags,
    pub(crate) unexpected_size: usize,
    /// The maximum number of messages that are lent to one peer. It is less than [`MAX_OPS`], so
    /// that other operations proceed while the peer holds as many.
    pub(crate) lent_max: usize,
    pub(crate) peer_timeout: Duration,
    pub(crate) eager_exchange: bool,
    /// The directory of the sockets, if they are not in the abstract namespace.
    pub(crate) directory: Option<Arc<Path>>,
    /// Whether `FI_REMOTE_COMM` is offered.
    pub(crate) remote_comm: bool,
    pub(crate) polled_peers: usize,
    pub(crate) unauthenticated_max: usize,
    pub(crate) hello_timeout: Duration,
    pub(crate) poll_policy: PollPolicy,
    pub(crate) placement: Placement,
}

/// The maximum number of outstanding responses to a peer; the region has room for as many.
pub(crate) const RESP_COUNT: usize = 512;

/// The longest timeout, a hundred years: a longer one can overflow the clock.
const TIMEOUT_MAX: Duration = Duration::from_hours(100 * 365 * 24);

impl Config {
    /// Reads the values of all parameters.
    ///
    /// # Errors
    /// The first invalid value, with the parameter's name.
    pub(crate) fn read(params: &Params) -> Result<Self, Error> {
        let params = params.with(PARAMS);
        rate_limit::set_rate(params.size("FI_SHM_LOG_RATE")?);
        let inject_size = params.size("FI_SHM_INJECT_SIZE")?;
        // Room for four payloads of the largest size: the gap at the end of the pool may take the
        // room of one.
        let pool = params.size("FI_SHM_POOL_SIZE")?.max(4 * inject_size);
        Ok(Self {
            tx_size: params.size("FI_SHM_TX_SIZE")?,
            rx_size: params.size("FI_SHM_RX_SIZE")?,
            inline_size: params.size("FI_SHM_INLINE_SIZE")?,
            inject_size,
            region: Sizes {
                cmd_count: params.size("FI_SHM_CMD_COUNT")?.next_power_of_two(),
                resp_count: RESP_COUNT,
                inject_size: pool.next_multiple_of(4096),
            },
            segment_size: params.size("FI_SHM_SEGMENT_SIZE")?.next_multiple_of(64),
            segment_count: params.size("FI_SHM_SEGMENT_COUNT")?,
            protocol: protocol(&params)?,
            write_flags: match params.text("FI_SHM_WRITE_COMPLETE")?.as_str() {
                "delivery" => OpFlags::DELIVERY_COMPLETE,
                _ => OpFlags::empty(),
            },
            unexpected_size: params.size("FI_SHM_UNEXPECTED_SIZE")?,
            lent_max: params.size("FI_SHM_LENT_MAX")?,
            peer_timeout: params.time("FI_SHM_PEER_TIMEOUT")?.min(TIMEOUT_MAX),
            eager_exchange: params.flag("FI_SHM_EAGER_EXCHANGE")?,
            directory: directory(&params)?,
            remote_comm: params.flag("FI_SHM_REMOTE_COMM")?,
            polled_peers: params.size("FI_SHM_HOT_PEERS")?,
            unauthenticated_max: params.size("FI_SHM_PENDING")?,
            hello_timeout: params.time("FI_SHM_HELLO_TIMEOUT")?,
            poll_policy: PollPolicy::new(
                params.time("FI_SHM_SPIN_TIME")?,
                params.flag("FI_SHM_YIELD")?,
            ),
            placement: Placement::parse(&params.text("FI_SHM_NUMA")?),
        })
    }
}

fn directory(params: &Params) -> Result<Option<Arc<Path>>, Error> {
    let path = params.text("FI_SHM_DIR")?;
    Ok((!path.is_empty()).then(|| Path::new(&path).into()))
}

impl Config {
    /// Returns the number of command slots that are reserved for results. An endpoint requests at
    /// most as many results from a peer at a time, so two endpoints never wait for room in each
    /// other's queues.
    pub(crate) fn reserved_slots(&self) -> u64 {
        (self.region.cmd_count as u64 / 8).min(64)
    }
}

fn protocol(params: &Params) -> Result<Protocol, Error> {
    if params.flag("FI_SHM_DISABLE_CMA")? {
        return Ok(Protocol::Bounce);
    }
    Ok(match params.text("FI_SHM_PROTOCOL")?.as_str() {
        "cma" => Protocol::Cma,
        "bounce" => Protocol::Bounce,
        _ => Protocol::Auto,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fi_shm_yield_forbids_yields() -> Result<(), Error> {
        for (value, yields) in [("0", false), ("1", true)] {
            let config = Config::read(&[("FI_SHM_YIELD", value)].into_iter().collect())?;
            assert_eq!(config.poll_policy, PollPolicy::new(SPIN, yields));
        }
        Ok(())
    }

    #[test]
    fn fi_shm_disable_cma_selects_bounce_buffers() -> Result<(), Error> {
        let table = [
            ("FI_SHM_DISABLE_CMA", "1", Protocol::Bounce),
            ("FI_SHM_DISABLE_CMA", "0", Protocol::Auto),
            ("FI_SHM_PROTOCOL", "CMA", Protocol::Cma),
            ("FI_SHM_PROTOCOL", "bounce", Protocol::Bounce),
        ];
        for (name, value, protocol) in table {
            let config = Config::read(&[(name, value)].into_iter().collect())?;
            assert_eq!(config.protocol, protocol, "{name}={value}");
        }
        Ok(())
    }
}
